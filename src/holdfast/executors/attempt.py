"""One attempt in a child: payload to arguments, the handler's call, and the answer that tells its end."""

import asyncio
import functools
import json
import math
import resource
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from holdfast.context import Context
from holdfast.errors import PayloadError, ResultError
from holdfast.executors.process_tree import writable_memory
from holdfast.handler import Handler
from holdfast.logs import current_job
from holdfast.middleware import Call, Middleware
from holdfast.outcome import Cancel, Fail, Snooze
from holdfast.retry import next_delay
from holdfast.serialization.failure import MAX_MESSAGE, describe
from holdfast.serialization.text import storable

LINGER_SECONDS = 1.0

Answer = dict[str, Any]


class Application(Protocol):
    """What a child needs of an application."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...
    @property
    def middlewares(self) -> Sequence[Middleware]: ...


class Attempt:
    """What the worker has ordered, and what its handler says meanwhile."""

    def __init__(self, order: Mapping[str, Any], tell: Callable[["Attempt"], None]) -> None:
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
        self.at_work = False
        self.is_over = False
        self.cancel: Callable[[], object] | None = None
        self._tell = tell

    @property
    def log_fields(self) -> dict[str, Any]:
        return {"task_id": self.task_id, "type": self.type, "attempt": self.attempt}

    def context(self) -> Context:
        return Context(self, functools.partial(self._tell, self), _refuse_transaction)


class Attempts:
    """Made one after the other. Coroutines share one event loop, as they do in a worker."""

    def __init__(self, application: Application) -> None:
        self._handlers = application.handlers
        self._middlewares = tuple(application.middlewares)
        self._loop: asyncio.Runner | None = None

    def run(self, attempt: Attempt) -> Answer:
        handler = self._handlers.get(attempt.type)
        if handler is None:
            return _failed("no_handler_registered", f"the child has no handler for {attempt.type}")
        current_job.set(attempt)
        try:
            with _limited(attempt.resources):
                value = self._call(attempt, handler)
                answer = _returned(handler, value)
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends the task, not the child
            return _raised(attempt, handler, error)
        finally:
            current_job.set(None)
        return answer

    def _call(self, attempt: Attempt, handler: Handler) -> Any:
        try:
            arguments = handler.decode(attempt.payload)
        except PayloadError as error:
            raise _NotDecoded(str(error)) from error
        given = (attempt.context(),) if handler.wants_context else ()
        bound = functools.partial(handler.function, *given, **arguments)
        if handler.is_async or self._middlewares:
            self._loop = self._loop or asyncio.Runner()
            return self._loop.run(self._in_loop(attempt, handler, bound))
        return _at_work(attempt, bound)

    async def _in_loop(self, attempt: Attempt, handler: Handler, bound: Callable[[], Any]) -> Any:
        async def in_place() -> Any:
            """A plain function blocks the loop. It is alone there, and can be interrupted as without one."""
            cancel, attempt.cancel = attempt.cancel, None
            try:
                return _at_work(attempt, bound)
            finally:
                attempt.cancel = cancel

        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None  # noqa: S101 - it runs this
        attempt.cancel = functools.partial(loop.call_soon_threadsafe, task.cancel)
        proceed: Callable[[], Awaitable[Any]] = bound if handler.is_async else in_place
        call = _described(attempt) if self._middlewares else None
        for middleware in reversed(self._middlewares):
            proceed = functools.partial(middleware, call, proceed)  # type: ignore[arg-type] # there is one, then
        try:
            return await proceed()
        finally:
            await _end_others(task)


class _NotDecoded(Exception):
    """A payload that does not fit. Of ours, because a handler may raise a PayloadError of its own."""


def _at_work(attempt: Attempt, bound: Callable[[], Any]) -> Any:
    """Interrupted while it is at work, and never once it has left."""
    attempt.at_work = True
    try:
        return bound()
    finally:
        attempt.at_work = False


async def _end_others(task: "asyncio.Task[Any]") -> None:
    """What a handler has started in the loop ends with it: between runs the loop stands still."""
    others = asyncio.all_tasks() - {task}
    for other in others:
        other.cancel()
    if others:
        await asyncio.wait(others, timeout=LINGER_SECONDS)


def _described(attempt: Attempt) -> Call:
    try:
        metadata = {} if attempt.metadata is None else json.loads(attempt.metadata)
        return Call(attempt.type, attempt.task_id, attempt.attempt, json.loads(attempt.payload), metadata)
    except (ValueError, RecursionError) as error:  # JSON that PostgreSQL holds and Python does not
        raise _NotDecoded(f"the payload of {attempt.type} cannot be read: {error}") from error


def _returned(handler: Handler, value: Any) -> Answer:
    match value:
        case Snooze():
            return {"status": "snooze", "seconds": value.delay.total_seconds()}
        case Cancel():
            return {"status": "cancelled", "reason": storable(value.reason, MAX_MESSAGE)}
        case Fail():
            return _failed("failed_by_handler", value.reason)
    try:
        return {"status": "succeeded", "result": handler.encode(value)}
    except ResultError as error:
        return _failed("result_not_serializable", str(error))


def _raised(attempt: Attempt, handler: Handler, error: BaseException) -> Answer:
    if attempt.stop is not None:
        return {"status": "stopped"}
    if isinstance(error, _NotDecoded):
        return _failed("invalid_payload", str(error))
    described = describe(error)
    if isinstance(error, MemoryError) and attempt.resources.get("memory") is not None:
        described["kind"] = "memory_limit"
    return {"status": "retry", "error": described, "delay": next_delay(handler.retry, attempt.attempt, error)}


def _failed(kind: str, message: str) -> Answer:
    return {
        "status": "retry",
        "error": {"kind": kind, "message": storable(message, MAX_MESSAGE)},
        "delay": None,
    }


def _refuse_transaction() -> Any:
    raise RuntimeError(
        "ctx.transaction() is for handlers that run in the worker: give the task the executor python"
    )


@contextmanager
def _limited(limits: Mapping[str, Any]) -> Iterator[None]:
    """Soft limits, taken back at the end. Memory is watched from outside, too, by what is really used."""
    before = {}
    for kind, value in _soft_limits(limits).items():
        soft, hard = resource.getrlimit(kind)
        before[kind] = (soft, hard)
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    try:
        yield
    finally:
        for kind, both in before.items():
            resource.setrlimit(kind, both)


def _soft_limits(limits: Mapping[str, Any]) -> dict[int, int]:
    found = {}
    if limits.get("cpu") is not None:
        found[resource.RLIMIT_CPU] = math.ceil(time.process_time() + limits["cpu"])
    if limits.get("memory") is not None:
        found[resource.RLIMIT_DATA] = writable_memory() + limits["memory"]
    if limits.get("files") is not None:
        found[resource.RLIMIT_NOFILE] = limits["files"]
    if limits.get("file_size") is not None:
        found[resource.RLIMIT_FSIZE] = limits["file_size"]
    return found
