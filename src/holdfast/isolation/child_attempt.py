"""Attempts in a child process: one after the other, within resource limits, and interruptible at any time."""

import asyncio
import functools
import math
import resource
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from holdfast._telemetry import tracing
from holdfast._telemetry.current_job import current_job
from holdfast._worker.attempt import (
    AttemptEnd,
    bind_call,
    end_of_error,
    end_of_value,
    error_in,
    through_middleware,
)
from holdfast._worker.handler import Handler
from holdfast._workflows.calls import Calls
from holdfast._workflows.ends import Suspended
from holdfast._workflows.run import Run
from holdfast.isolation.child_run import WorkerChannel, open_run, refuse_transaction
from holdfast.isolation.process_tree import writable_memory
from holdfast.middleware import Middleware

LINGER_SECONDS = 1.0


class ChildApplication(Protocol):
    """What a child process needs of an application."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...
    @property
    def middlewares(self) -> Sequence[Middleware]: ...
    @property
    def settings(self) -> Any: ...


class ChildChannel(WorkerChannel, Protocol):
    """Reads answers of the worker in an event loop, between `attach` and `detach`."""

    def attach(self, loop: asyncio.AbstractEventLoop) -> None: ...
    def detach(self) -> None: ...


class ChildAttempt:
    """An attempt that the worker has ordered."""

    def __init__(self, order: Mapping[str, Any], send_progress: Callable[["ChildAttempt"], None]) -> None:
        self.run: int = order["run"]
        self.task_id: str = order["task_id"]
        self.type: str = order["type"]
        self.attempt: int = order["attempt"]
        self.max_attempts: int = order["max_attempts"]
        self.payload: str = order["payload"]
        self.metadata: str | None = order["metadata"]
        self.resources: Mapping[str, Any] = order["resources"]
        self._ahead: float = order["now"] - time.monotonic()
        self.progress: dict[str, Any] | None = None
        self.stop: str | None = None
        self.is_interruptible = False
        self.is_over = False
        self.cancel: Callable[[], object] | None = None
        self.send_progress = functools.partial(send_progress, self)
        self.steps: Run | None = None
        self.calls: Calls | None = None

    @property
    def log_fields(self) -> dict[str, Any]:
        return {"task_id": self.task_id, "type": self.type, "attempt": self.attempt}

    def now(self) -> float:
        """The time of the database, as the worker knew it when it ordered the attempt, and since."""
        return time.monotonic() + self._ahead


class ChildAttempts:
    """Runs attempts one at a time. Coroutines share one event loop, as they do in a worker."""

    def __init__(self, application: ChildApplication, channel: ChildChannel) -> None:
        self._channel = channel
        self._application = application
        self._handlers = application.handlers
        self._middlewares = tuple(application.middlewares)
        self._loop: asyncio.Runner | None = None

    def run(self, attempt: ChildAttempt) -> AttemptEnd | None:
        """How it ended, or None if it was stopped."""
        handler = self._handlers.get(attempt.type)
        if handler is None:
            message = f"the child process has no handler for {attempt.type}"
            return AttemptEnd.failed("no_handler_registered", message)
        current_job.set(attempt)
        try:
            with _limited(attempt.resources), tracing.joined(attempt.metadata):
                value = self._call(attempt, handler)
                end = end_of_value(handler, attempt.calls, value)
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends the attempt, not the process
            if attempt.stop is not None:
                return None
            end = _end_of_error(attempt, handler, error)
        finally:
            current_job.set(None)
        if attempt.steps is not None:
            end.report = attempt.steps.report(end.status)
        return end

    def _call(self, attempt: ChildAttempt, handler: Handler) -> Any:
        open_steps = functools.partial(self._open_steps, attempt, is_async=handler.is_async)
        bound = bind_call(attempt, handler, attempt.send_progress, refuse_transaction, open_steps)
        if handler.is_async or self._middlewares:
            self._loop = self._loop or asyncio.Runner()
            return self._loop.run(self._call_in_loop(attempt, handler, bound))
        return _call_interruptibly(attempt, functools.partial(_with_steps, attempt, bound))

    def _open_steps(self, attempt: ChildAttempt, *, is_async: bool) -> Run:
        if attempt.steps is not None:
            return attempt.steps
        if is_async:
            self._channel.attach(asyncio.get_running_loop())
        attempt.steps = open_run(
            attempt, self._channel, lambda: self._application.settings, is_async=is_async
        )
        return attempt.steps

    async def _call_in_loop(self, attempt: ChildAttempt, handler: Handler, bound: Callable[[], Any]) -> Any:
        async def blocking() -> Any:
            """A plain function may block the loop: nothing else runs in it, and a signal interrupts it."""
            cancel, attempt.cancel = attempt.cancel, None
            try:
                return _call_interruptibly(attempt, functools.partial(_with_steps, attempt, bound))
            finally:
                attempt.cancel = cancel

        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        attempt.cancel = functools.partial(loop.call_soon_threadsafe, task.cancel)
        proceed: Callable[[], Awaitable[Any]] = bound if handler.is_async else blocking
        if handler.remembers_first and handler.is_async:
            await self._open_steps(attempt, is_async=True).aload()
        if self._middlewares:
            proceed = through_middleware(self._middlewares, attempt, proceed)
        try:
            try:
                return await proceed()
            finally:
                if handler.is_async and attempt.steps is not None and attempt.stop is None:
                    await attempt.steps.aended()
                    if attempt.steps.suspended is not None:
                        raise Suspended  # also if the handler has caught the first one
        finally:
            self._channel.detach()
            await _cancel_others(task)


def _with_steps(attempt: ChildAttempt, bound: Callable[[], Any]) -> Any:
    try:
        return bound()
    finally:
        if attempt.steps is not None and attempt.stop is None:
            attempt.steps.ended()
            if attempt.steps.suspended is not None:
                raise Suspended  # also if the handler has caught the first one


def _call_interruptibly(attempt: ChildAttempt, bound: Callable[[], Any]) -> Any:
    """A signal interrupts the handler while it runs, and never after it has returned."""
    attempt.is_interruptible = True
    try:
        return bound()
    finally:
        attempt.is_interruptible = False


async def _cancel_others(task: "asyncio.Task[Any]") -> None:
    """Tasks that a handler started end with it: the loop does not run between attempts."""
    others = asyncio.all_tasks() - {task}
    for other in others:
        other.cancel()
    if others:
        await asyncio.wait(others, timeout=LINGER_SECONDS)


def _end_of_error(attempt: ChildAttempt, handler: Handler, error: BaseException) -> AttemptEnd:
    if attempt.steps is not None and attempt.steps.suspended is not None:
        return AttemptEnd("suspend")
    end = end_of_error(handler, attempt.attempt, error_in(attempt.calls, error))
    if isinstance(error, MemoryError) and attempt.resources.get("memory") is not None:
        end.error = {**(end.error or {}), "kind": "memory_limit"}
    return end


@contextmanager
def _limited(resources: Mapping[str, Any]) -> Iterator[None]:
    """Set soft limits, and restore them. The spawner also watches the memory that is really used."""
    before = {}
    for kind, value in _soft_limits(resources).items():
        soft, hard = resource.getrlimit(kind)
        before[kind] = (soft, hard)
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    try:
        yield
    finally:
        for kind, both in before.items():
            resource.setrlimit(kind, both)


def _soft_limits(resources: Mapping[str, Any]) -> dict[int, int]:
    found = {}
    if resources.get("cpu") is not None:
        found[resource.RLIMIT_CPU] = math.ceil(time.process_time() + resources["cpu"])
    if resources.get("memory") is not None:
        found[resource.RLIMIT_DATA] = writable_memory() + resources["memory"]
    if resources.get("files") is not None:
        found[resource.RLIMIT_NOFILE] = resources["files"]
    if resources.get("file_size") is not None:
        found[resource.RLIMIT_FSIZE] = resources["file_size"]
    return found
