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
from holdfast._telemetry.logs import SilentLog
from holdfast._worker.attempt import Attempt, awaiting, bind_call, blocking, making, through_middleware
from holdfast._worker.handler import Handler
from holdfast._worker.report import AttemptEnd, Reports
from holdfast._workflows.calls import Calls
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


class ChildReports(Reports[AttemptEnd]):
    """The end itself, which the child process sends to its worker, with what the run remembers."""

    def write(self, task: ChildAttempt, end: AttemptEnd) -> AttemptEnd:
        if task.steps is not None:
            end.report = task.steps.report(end.status)
        return end

    def raised(self, task: ChildAttempt, handler: Handler, error: BaseException) -> AttemptEnd:
        end = super().raised(task, handler, error)
        if isinstance(error, MemoryError) and task.resources.get("memory") is not None:
            end.error = {**(end.error or {}), "kind": "memory_limit"}
        return end


class ChildAttempts:
    """Makes attempts one at a time. Coroutines share one event loop, as they do in a worker."""

    def __init__(self, application: ChildApplication, channel: ChildChannel) -> None:
        self.channel = channel
        self.application = application
        self.middlewares = tuple(application.middlewares)
        self._handlers = application.handlers
        self._loop: asyncio.Runner | None = None

    def run(self, task: ChildAttempt) -> AttemptEnd | None:
        """How it ended, or None if it was stopped."""
        handler = self._handlers.get(task.type)
        if handler is None:
            message = f"the child process has no handler for {task.type}"
            return AttemptEnd.failed("no_handler_registered", message)
        current_job.set(task)
        attempt = _Attempt(task, handler, self)
        try:
            with _limited(task.resources), tracing.joined(task.metadata):
                if handler.is_async or self.middlewares:
                    self._loop = self._loop or asyncio.Runner()
                    return self._loop.run(self._run_in_loop(attempt))
                work = making(attempt, _Here(task))
                return blocking(work)
        except BaseException:
            if task.stop is None:
                raise
            return None  # it was stopped at its very end
        finally:
            current_job.set(None)

    def open_run(self, task: ChildAttempt, *, is_async: bool) -> Run:
        if task.steps is not None:
            return task.steps
        if is_async:
            self.channel.attach(asyncio.get_running_loop())
        task.steps = open_run(task, self.channel, lambda: self.application.settings, is_async=is_async)
        return task.steps

    async def _run_in_loop(self, attempt: "_Attempt") -> AttemptEnd | None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        attempt.task.cancel = functools.partial(loop.call_soon_threadsafe, task.cancel)
        try:
            work = making(attempt, _InLoop(attempt, self.middlewares))
            return await awaiting(work)
        finally:
            self.channel.detach()
            await _cancel_others(task)


class _Attempt(Attempt[AttemptEnd]):
    def __init__(self, task: ChildAttempt, handler: Handler, attempts: ChildAttempts) -> None:
        super().__init__(task, handler, ChildReports(), SilentLog())
        self._attempts = attempts

    @property
    def run(self) -> Run | None:
        steps: Run | None = self.task.steps
        return steps

    def bind(self) -> Callable[[], Any]:
        return bind_call(self.task, self.handler, self.task.send_progress, refuse_transaction, self.open_run)

    def open_run(self) -> Run:
        return self._attempts.open_run(self.task, is_async=self.handler.is_async)


class _Here:
    """The main thread of the child process, while no event loop runs."""

    def __init__(self, task: ChildAttempt) -> None:
        self._task = task

    def load(self, run: Run) -> None:
        _call_interruptibly(self._task, run.load)

    def call(self, attempt: Attempt[Any], bound: Callable[[], Any]) -> Any:
        del attempt
        return _call_interruptibly(self._task, bound)

    def end_run(self, run: Run) -> None:
        _call_interruptibly(self._task, run.ended)

    def commit(self, attempt: Any, report: Any) -> None:
        """A child process has no transaction."""

    def roll_back(self, transaction: Any) -> None:
        """A child process has no transaction."""


class _InLoop:
    """The event loop of the child process. A plain function may block it: nothing else runs."""

    def __init__(self, attempt: _Attempt, middlewares: Sequence[Middleware]) -> None:
        self._task: ChildAttempt = attempt.task
        self._is_async = attempt.handler.is_async
        self._middlewares = middlewares

    def load(self, run: Run) -> Awaitable[None]:
        return run.aload() if self._is_async else self._blocked(run.load)

    def call(self, attempt: Attempt[Any], bound: Callable[[], Any]) -> Awaitable[Any]:
        del attempt
        proceed: Callable[[], Awaitable[Any]] = bound
        if not self._is_async:
            proceed = functools.partial(self._blocked, bound)
        if self._middlewares:
            proceed = through_middleware(self._middlewares, self._task, proceed)
        return proceed()

    def end_run(self, run: Run) -> Awaitable[None]:
        return run.aended() if self._is_async else self._blocked(run.ended)

    async def _blocked(self, call: Callable[[], Any]) -> Any:
        """A signal interrupts it."""
        task = self._task
        cancel, task.cancel = task.cancel, None
        try:
            return _call_interruptibly(task, call)
        finally:
            task.cancel = cancel

    async def commit(self, attempt: Any, report: Any) -> None:
        """A child process has no transaction."""

    async def roll_back(self, transaction: Any) -> None:
        """A child process has no transaction."""


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
