"""Runs with steps in a child process: the worker reads and records for it, over their socket."""

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from holdfast.executors.attempt import HandlerTimeout
from holdfast.workflows.async_run import AsyncRun
from holdfast.workflows.blocking_run import BlockingRun
from holdfast.workflows.journal import Journal, Read, Recorded, Started
from holdfast.workflows.run import Run, RunTask


class WorkerChannel(Protocol):
    """Questions to the worker. `reply` is called with each answer when it was read."""

    def ask(self, question: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None: ...
    def pump(self) -> None:
        """Wait for messages, and read them."""


class PipeJournal(Journal):
    """The memory of the run that this child process works on."""

    def __init__(self, channel: WorkerChannel) -> None:
        self._channel = channel

    def read(self, done: Read) -> None:
        self._channel.ask({"do": "read"}, lambda reply: done(reply["rows"], reply["clock"]))

    def record(self, written: str, done: Recorded, *, lazy: bool) -> None:
        def answered(reply: dict[str, Any]) -> None:
            error = reply["error"]
            done(reply["verdict"], None if error is None else RuntimeError(error))

        self._channel.ask({"do": "record", "written": written, "lazy": lazy}, answered)

    def start(self, held: str, tasks: str, payloads: list[str] | None, done: Started) -> None:
        def answered(reply: dict[str, Any]) -> None:
            error = reply["error"]
            done(reply["verdict"], reply["task_ids"], None if error is None else RuntimeError(error))

        self._channel.ask({"do": "start", "held": held, "tasks": tasks, "payloads": payloads}, answered)


class BlockingPipeJournal(PipeJournal):
    """Of a plain function, which reads the socket itself while it waits."""

    def later(self, call: Callable[[], None]) -> None:
        """Send it now: nothing else of this process would remember to."""
        call()

    def pump(self) -> None:
        self._channel.pump()


class ChildHost:
    """What runs the handler in a child process."""

    def __init__(self) -> None:
        try:
            self._task = asyncio.current_task()
        except RuntimeError:  # not in an event loop
            self._task = None

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.to_thread(call)

    def limited(self, seconds: float, call: Callable[[], Any]) -> Any:
        # The child process does not need the worker otherwise, and the worker imports this module.
        from holdfast.worker.watchdog import WatchedHandler  # noqa: PLC0415

        watched = WatchedHandler(None, seconds, in_loop=False)  # type: ignore[arg-type] # nothing asks for its job
        timer = threading.Timer(seconds, watched.interrupt, [HandlerTimeout])
        timer.daemon = True
        timer.start()
        try:
            return watched.run(call)
        except HandlerTimeout as error:
            raise TimeoutError(f"the step took longer than its limit of {seconds:g} s") from error
        finally:
            timer.cancel()

    def open_transaction(self) -> Any:
        return refuse_transaction()


def open_run(task: RunTask, channel: WorkerChannel, *, is_async: bool) -> Run:
    if is_async:
        return AsyncRun(task, PipeJournal(channel), ChildHost())
    return BlockingRun(task, BlockingPipeJournal(channel), ChildHost())


def refuse_transaction() -> Any:
    raise RuntimeError("ctx.transaction() needs a handler that runs in the worker: use the executor python")


def answer_question(journal: Any, message: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> None:
    """In the worker: read or record for a child process. `journal` is that of its job."""
    reply = functools.partial(_reply, send, message["ask"])
    if message["do"] == "read":
        journal.read(lambda rows, clock: reply(rows=rows, clock=clock))
        return
    if message["do"] == "start":
        journal.start(
            message["held"],
            message["tasks"],
            message["payloads"],
            lambda verdict, task_ids, error: reply(
                verdict=verdict, task_ids=list(task_ids), error=None if error is None else str(error)
            ),
        )
        return
    journal.record(
        message["written"],
        lambda verdict, error: reply(verdict=verdict, error=None if error is None else str(error)),
        lazy=bool(message["lazy"]),
    )


def _reply(send: Callable[[dict[str, Any]], None], number: int, **answer: Any) -> None:
    send({"reply": number, **answer})
