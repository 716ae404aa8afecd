"""Attempts in a child process: one after the other, within resource limits, and interruptible at any time."""

import asyncio
import functools
import math
import resource
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from holdfast.executors.attempt import (
    AttemptEnd,
    bind_call,
    end_of_error,
    end_of_value,
    through_middleware,
)
from holdfast.executors.process_tree import writable_memory
from holdfast.handler import Handler
from holdfast.logs import current_job
from holdfast.middleware import Middleware

LINGER_SECONDS = 1.0


class ChildApplication(Protocol):
    """What a child process needs of an application."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...
    @property
    def middlewares(self) -> Sequence[Middleware]: ...


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
        self.progress: dict[str, Any] | None = None
        self.stop: str | None = None
        self.is_interruptible = False
        self.is_over = False
        self.cancel: Callable[[], object] | None = None
        self.send_progress = functools.partial(send_progress, self)

    @property
    def log_fields(self) -> dict[str, Any]:
        return {"task_id": self.task_id, "type": self.type, "attempt": self.attempt}


class ChildAttempts:
    """Runs attempts one at a time. Coroutines share one event loop, as they do in a worker."""

    def __init__(self, application: ChildApplication) -> None:
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
            with _limited(attempt.resources):
                end = end_of_value(handler, self._call(attempt, handler))
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends the attempt, not the process
            return None if attempt.stop is not None else _end_of_error(attempt, handler, error)
        finally:
            current_job.set(None)
        return end

    def _call(self, attempt: ChildAttempt, handler: Handler) -> Any:
        bound = bind_call(attempt, handler, attempt.send_progress, _refuse_transaction)
        if handler.is_async or self._middlewares:
            self._loop = self._loop or asyncio.Runner()
            return self._loop.run(self._call_in_loop(attempt, handler, bound))
        return _call_interruptibly(attempt, bound)

    async def _call_in_loop(self, attempt: ChildAttempt, handler: Handler, bound: Callable[[], Any]) -> Any:
        async def blocking() -> Any:
            """A plain function may block the loop: nothing else runs in it, and a signal interrupts it."""
            cancel, attempt.cancel = attempt.cancel, None
            try:
                return _call_interruptibly(attempt, bound)
            finally:
                attempt.cancel = cancel

        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        attempt.cancel = functools.partial(loop.call_soon_threadsafe, task.cancel)
        proceed: Callable[[], Awaitable[Any]] = bound if handler.is_async else blocking
        if self._middlewares:
            proceed = through_middleware(self._middlewares, attempt, proceed)
        try:
            return await proceed()
        finally:
            await _cancel_others(task)


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
    end = end_of_error(handler, attempt.attempt, error)
    if isinstance(error, MemoryError) and attempt.resources.get("memory") is not None:
        end.error = {**(end.error or {}), "kind": "memory_limit"}
    return end


def _refuse_transaction() -> Any:
    raise RuntimeError("ctx.transaction() needs a handler that runs in the worker: use the executor python")


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
