"""Runs with steps in a child process: the worker reads and records for it, over their socket."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from holdfast._engine.steps import StartingStep
from holdfast._worker.report import HandlerTimeout
from holdfast._workflows.drivers import Awaiting, Blocking
from holdfast._workflows.journal import Host, Journal, Read, Recorded, Started
from holdfast._workflows.memory import FailedStep, RunReport, RunState, RunTask, StepMemo
from holdfast._workflows.run import Run
from holdfast.errors import InvalidStep
from holdfast.isolation.child_messages import (
    FAILED_TRY,
    MAX_SIGNALS,
    READ,
    RECORD,
    START,
    MessageLimits,
    Told,
    report_fields,
    split,
)


class WorkerChannel(Protocol):
    """Messages to the worker. `reply` is called with the answer to a question when it was read."""

    @property
    def limits(self) -> MessageLimits: ...
    def tell(self, kind: bytes, fields: dict[str, Any]) -> None: ...
    def ask(
        self,
        kind: bytes,
        fields: dict[str, Any],
        texts: Sequence[str],
        reply: Callable[[dict[str, Any]], None],
    ) -> None: ...
    def pump(self) -> None:
        """Wait for messages, and read them."""


class PipeJournal(Journal):
    """The memory of the run that this child process works on."""

    def __init__(self, channel: WorkerChannel) -> None:
        self._channel = channel

    def read(self, done: Read, signals: Sequence[str] = ()) -> None:
        if len(signals) > MAX_SIGNALS:
            raise InvalidStep(
                f"a run in a child process waits for at most {MAX_SIGNALS} signals at once,"
                f" not {len(signals)}",
                hint="Send one name several times, with what differs in the payload.",
            )
        fields = {"signals": list(signals)}
        self._channel.ask(READ, fields, (), lambda reply: done(reply["rows"], reply["clock"]))

    def record(
        self, kept: Sequence[StepMemo], tries: Sequence[FailedStep], done: Recorded, *, lazy: bool
    ) -> None:
        """In as many messages as it takes. The first bad verdict counts."""
        parts = split(RunReport(kept, tries), self._channel.limits)
        replies: list[dict[str, Any]] = []

        def answered(reply: dict[str, Any]) -> None:
            replies.append(reply)
            if len(replies) == len(parts):
                bad = (one for one in replies if one["verdict"] not in ("recorded", "already"))
                told = next(bad, reply)
                done(told["verdict"], None if told["error"] is None else RuntimeError(told["error"]))

        for part in parts:
            texts: list[str] = []
            fields = {"lazy": lazy, "report": report_fields(part, texts)}
            self._channel.ask(RECORD, fields, texts, answered)

    def start(self, step: StartingStep, tasks: str, payloads: list[str] | None, done: Started) -> None:
        def answered(reply: dict[str, Any]) -> None:
            error = reply["error"]
            done(reply["verdict"], reply["task_ids"], None if error is None else RuntimeError(error))

        fields = {
            "name": step.name,
            "number": step.number,
            "awaited": step.awaited,
            "leave": step.leave,
            "batch": step.batch,
            "keys": step.keys is not None,
            "payloads": payloads is not None,
        }
        keys = () if step.keys is None else (json.dumps(list(step.keys)),)
        self._channel.ask(START, fields, [tasks, *keys, *(payloads or ())], answered)

    def later(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(call)

    def step_failed(self, failed: FailedStep) -> None:
        self._channel.tell(FAILED_TRY, {"failed": failed.brief()})


class BlockingPipeJournal(PipeJournal):
    """Of a plain function, which reads the socket itself while it waits."""

    def later(self, call: Callable[[], None]) -> None:
        """Send it now: nothing else of this process would remember to."""
        call()

    def pump(self) -> bool:
        self._channel.pump()
        return True


class ChildHost(Host):
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
        from holdfast._worker.watchdog import WatchedHandler  # noqa: PLC0415 - few steps have a limit

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


def open_run(task: RunTask, channel: WorkerChannel, settings: Callable[[], Any], *, is_async: bool) -> Run:
    state, host = RunState(task), ChildHost()
    if is_async:
        return Run(state, Awaiting(state, PipeJournal(channel), host), settings)
    return Run(state, Blocking(state, BlockingPipeJournal(channel), host), settings)


def refuse_transaction() -> Any:
    raise RuntimeError("ctx.transaction() needs a handler that runs in the worker: use the executor python")


def answer_question(journal: Journal, asked: Told, reply: Callable[[dict[str, Any]], None]) -> None:
    """In the worker: read or record for a child process. `journal` is that of its job."""

    def recorded(verdict: str, error: BaseException | None) -> None:
        reply({"verdict": verdict, "error": None if error is None else str(error)})

    def started(verdict: str, task_ids: Sequence[str], error: BaseException | None) -> None:
        told = None if error is None else str(error)
        reply({"verdict": verdict, "task_ids": list(task_ids), "error": told})

    if asked.kind == READ:
        journal.read(lambda rows, clock: reply({"rows": rows, "clock": clock}), asked.signals)
    elif asked.kind == RECORD:
        journal.record(asked.report.steps, asked.report.tries, recorded, lazy=asked.lazy)
    elif asked.step is not None:
        journal.start(asked.step, asked.tasks, asked.payloads, started)
    elif asked.failed is not None:
        journal.step_failed(asked.failed)
