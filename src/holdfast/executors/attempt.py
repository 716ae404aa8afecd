"""One attempt of a handler, wherever it runs: its call, with arguments and middleware, and how it ended.

The worker's event loop and threads, child processes and the test plugin all use this.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, Protocol

from holdfast.context import Context, Held
from holdfast.errors import PayloadError, ResultError
from holdfast.handler import Handler
from holdfast.middleware import Call, Middleware
from holdfast.outcome import OUTCOMES, Cancel, Fail, Retry, Snooze
from holdfast.retry import DEFAULT_RETRY, MAX_DELAY_SECONDS, next_delay
from holdfast.serialization.failure import describe, error_of
from holdfast.serialization.text import storable_json

Status = Literal["succeeded", "snooze", "cancelled", "failed", "retry"]


class AttemptTask(Held, Protocol):
    """The task of an attempt."""

    payload: str


class HandlerTimeout(BaseException):
    """Raised in a handler that is past its time limit. Not an Exception, so that few handlers catch it."""


class NotDecoded(Exception):
    """The payload does not fit the handler. Not a PayloadError, which the handler itself may raise."""


class NotEncoded(Exception):
    """The result cannot be written as JSON. A transaction of the handler is rolled back."""


@dataclass(slots=True)
class AttemptEnd:
    """How an attempt ended: a result as JSON or an error, and the seconds until the next run.

    A retry without a delay gets that of the database.
    """

    status: Status
    result: str | None = None
    error: Mapping[str, Any] | None = None
    delay: float | None = None

    @classmethod
    def succeeded(cls, result: str) -> "AttemptEnd":
        """With a result that is JSON already."""
        return cls("succeeded", result=storable_json(result))

    @classmethod
    def failed(cls, kind: str, message: str, **detail: Any) -> "AttemptEnd":
        """Another attempt would not help."""
        return cls("failed", error={**error_of(kind, message), **detail})

    @classmethod
    def retry(
        cls, attempt: int, kind: str, message: str, *, delay: float | None = None, **detail: Any
    ) -> "AttemptEnd":
        """Try again after these seconds, or else after the usual delay of this attempt."""
        seconds = DEFAULT_RETRY.delay(attempt, RuntimeError(message)) if delay is None else delay
        error = {**error_of(kind, message), **detail}
        return cls("retry", error=error, delay=min(max(0.0, seconds), MAX_DELAY_SECONDS))

    def as_message(self) -> dict[str, Any]:
        return asdict(self)


def bind_call(
    task: AttemptTask,
    handler: Handler,
    send_progress: Callable[[], None],
    open_transaction: Callable[[], Any],
) -> Callable[[], Any]:
    """The handler with its arguments, and with its context if it takes one."""
    try:
        arguments = handler.decode(task.payload)
    except PayloadError as error:
        raise NotDecoded(str(error)) from error
    if handler.wants_context:
        return partial(handler.function, Context(task, send_progress, open_transaction), **arguments)
    return partial(handler.function, **arguments)


def through_middleware(
    middlewares: Sequence[Middleware], task: AttemptTask, proceed: Callable[[], Awaitable[Any]]
) -> Callable[[], Awaitable[Any]]:
    """The call inside its middleware; the first middleware is the outermost."""
    call = _describe_call(task)
    for middleware in reversed(middlewares):
        proceed = partial(middleware, call, proceed)
    return proceed


def end_of_value(handler: Handler, value: Any) -> AttemptEnd:
    """How an attempt ended whose handler returned this."""
    match value:
        case Snooze():
            return AttemptEnd("snooze", delay=min(value.seconds, MAX_DELAY_SECONDS))
        case Retry():
            error = error_of("retried_by_handler", str(value))
            return AttemptEnd("retry", error=error, delay=min(value.after, MAX_DELAY_SECONDS))
        case Cancel():
            return AttemptEnd("cancelled", error=error_of("cancelled_by_handler", value.reason))
        case Fail():
            return AttemptEnd.failed("failed_by_handler", value.reason)
    try:
        return AttemptEnd("succeeded", result=handler.encode(value))
    except ResultError as error:
        raise NotEncoded(str(error)) from error


def end_of_error(handler: Handler, attempt: int, error: BaseException) -> AttemptEnd:
    """How an attempt ended in which this was raised."""
    if isinstance(error, OUTCOMES):
        return end_of_value(handler, error)
    if isinstance(error, NotDecoded):
        return AttemptEnd.failed("invalid_payload", str(error))
    if isinstance(error, NotEncoded):
        return AttemptEnd.failed("result_not_serializable", str(error))
    delay = next_delay(handler.retry, attempt, error)
    described = _describe_error(error)
    if delay is None:
        return AttemptEnd("failed", error=described)
    return AttemptEnd("retry", error=described, delay=delay)


def _describe_call(task: AttemptTask) -> Call:
    try:
        metadata = {} if task.metadata is None else json.loads(task.metadata)
        return Call(task.type, task.task_id, task.attempt, json.loads(task.payload), metadata)
    except (ValueError, RecursionError) as error:  # JSON that PostgreSQL stores and Python cannot read
        raise NotDecoded(f"the payload of {task.type} cannot be read: {error}") from error


def _describe_error(error: BaseException) -> dict[str, Any]:
    if isinstance(error, HandlerTimeout):
        return {"kind": "timeout", "message": str(error) or "the time limit of the attempt was passed"}
    return describe(error)
