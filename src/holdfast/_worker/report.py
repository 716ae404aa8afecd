"""Reports: how an attempt ended, and what `finish` is told about it."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Literal, Protocol, TypeVar

from holdfast._engine.leases import result_json
from holdfast._serialization.failure import describe, error_of
from holdfast._serialization.text import RawJson, report_json, storable_json
from holdfast._telemetry import tracing
from holdfast._worker.handler import Handler
from holdfast._workflows.calls import Calls, check_all_awaited
from holdfast._workflows.ends import Continued
from holdfast._workflows.memory import RunReport
from holdfast.context import Held
from holdfast.errors import InvalidArgument, PayloadError, ResultError, RunTooLong, StepFailed
from holdfast.outcome import OUTCOMES, Cancel, Fail, Retry, Snooze
from holdfast.retry import DEFAULT_RETRY, MAX_DELAY_SECONDS, next_delay

CERTAINLY_STORABLE = 500  # characters: too few to be nested too deeply or to be too long
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

R = TypeVar("R")
Status = Literal["succeeded", "snooze", "cancelled", "failed", "retry", "suspend", "continue"]


class AttemptTask(Held, Protocol):
    """The task of an attempt."""

    payload: str


class ReportedTask(Protocol):
    """The task that a report is about."""

    type: str
    task_id: Any
    token: Any
    attempt: int
    status: str
    started: float | None
    ends_at: float | None
    calls: Calls | None

    @property
    def is_past_deadline(self) -> bool: ...

    @property
    def run(self) -> Any:
        """The `Run` of a handler with steps, or None."""


class HandlerTimeout(BaseException):
    """Raised in a handler that is past its time limit. Not an Exception, so that few handlers catch it."""


class DeadlinePassed(HandlerTimeout):
    """Raised when a task has not ended within its deadline, which counts from its enqueue."""

    def __init__(self, ends_at: float | None) -> None:
        super().__init__(f"the task did not end by {to_timestamp(ends_at or 0.0)}, its deadline")


class NotDecoded(Exception):
    """The payload does not fit the handler. Not a PayloadError, which the handler itself may raise."""


class NotEncoded(Exception):
    """The result cannot be written as JSON. A transaction of the handler is rolled back."""


class CommitUnknown(Exception):
    """The connection was lost during the commit: nobody knows whether it happened."""


@dataclass(slots=True)
class AttemptEnd:
    """How an attempt ended: a result as JSON or an error, and the seconds until the next run.

    A retry without a delay gets that of the database. The report is that of a run in a child process.
    """

    status: Status
    result: str | None = None
    error: Mapping[str, Any] | None = None
    delay: float | None = None
    report: RunReport | None = None
    payload: str | None = None

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

    @classmethod
    def postpone(cls, delay: float, kind: str, message: str) -> "AttemptEnd":
        """Run it after these seconds, without counting the attempt."""
        return cls("snooze", error=error_of(kind, message), delay=delay)

    def as_message(self) -> dict[str, Any]:
        return asdict(self)


def end_of_value(handler: Handler, calls: Calls | None, value: Any) -> AttemptEnd:
    """How an attempt ended whose handler returned this, and made these calls."""
    if calls is not None:
        check_all_awaited(calls)
    if isinstance(value, OUTCOMES):
        return _end_of_outcome(value)
    try:
        return AttemptEnd("succeeded", result=handler.result.encode(value))
    except ResultError as error:
        raise NotEncoded(str(error)) from error


def check_answer(handler: Handler | None, answer: str) -> None:
    """Raise NotEncoded if the handler says that what a program answered is of another type."""
    try:
        if handler is not None:
            handler.result.read(answer)
    except ResultError as error:
        raise NotEncoded(str(error)) from error


def end_of_not_encoded(error: NotEncoded) -> AttemptEnd:
    return AttemptEnd.failed("result_not_serializable", str(error))


def end_of_unknown_commit(attempt: int) -> AttemptEnd:
    """Accepted only if the commit did not happen; then the task is retried."""
    return AttemptEnd.retry(attempt, "commit_unknown", "the connection was lost at the commit", delay=0)


def _end_of_outcome(outcome: Snooze | Retry | Cancel | Fail) -> AttemptEnd:
    match outcome:
        case Snooze():
            return AttemptEnd("snooze", delay=min(outcome.seconds, MAX_DELAY_SECONDS))
        case Retry():
            error = error_of("retried_by_handler", str(outcome))
            return AttemptEnd("retry", error=error, delay=min(outcome.after, MAX_DELAY_SECONDS))
        case Cancel():
            return AttemptEnd("cancelled", error=error_of("cancelled_by_handler", outcome.reason))
        case Fail():
            return AttemptEnd.failed("failed_by_handler", outcome.reason)


def error_in(calls: Calls | None, error: BaseException) -> BaseException:
    """What was raised; or what the handler forgot to await, if it ended the attempt as it wanted to."""
    if calls is None or not isinstance(error, (*OUTCOMES, Continued)):
        return error
    return calls.forgotten() or error


def end_of_error(handler: Handler, attempt: int, error: BaseException) -> AttemptEnd:  # noqa: PLR0911 - a table
    """How an attempt ended in which this was raised."""
    if isinstance(error, OUTCOMES):
        return _end_of_outcome(error)
    if isinstance(error, NotDecoded):
        return AttemptEnd.failed("invalid_payload", str(error))
    if isinstance(error, NotEncoded):
        return end_of_not_encoded(error)
    if isinstance(error, Continued):
        return _end_of_continued(handler, error)
    if isinstance(error, DeadlinePassed):
        return AttemptEnd.failed("deadline_passed", str(error))
    if isinstance(error, CommitUnknown):
        return end_of_unknown_commit(attempt)
    if isinstance(error, RunTooLong):
        return AttemptEnd.failed("run_too_long", str(error))
    # The policy of the handler knows the exceptions of the application.
    cause = error.__cause__ if isinstance(error, StepFailed) else None
    delay = next_delay(handler.retry, attempt, cause or error)
    described = _describe_error(error)
    if delay is None:
        return AttemptEnd("failed", error=described)
    return AttemptEnd("retry", error=described, delay=delay)


def _end_of_continued(handler: Handler, error: Continued) -> AttemptEnd:
    try:
        payload = handler.arguments.check((), error.arguments)
    except (PayloadError, InvalidArgument) as problem:
        return AttemptEnd.failed("invalid_arguments", f"ctx.continue_as: {problem}")
    return AttemptEnd("continue", payload=payload)


def to_timestamp(seconds: float) -> str:
    """Format seconds since 1970 for PostgreSQL, exact to the microsecond."""
    return (_EPOCH + timedelta(microseconds=round(seconds * 1e6))).isoformat()


class DatabaseClock:
    """Estimates the database's time from its last answer. The wall clock of this machine is never stored."""

    def __init__(self) -> None:
        self._ahead: float | None = None
        self._last = (0, "")

    def heard(self, clock: float) -> None:
        """Call right after an answer: the estimate may lag by the way back, and is never ahead."""
        self._ahead = clock - time.monotonic()

    def at(self, monotonic: float, delay: float = 0.0) -> str | None:
        """Convert a monotonic time of this process, plus a delay. The text of a millisecond is cached."""
        if self._ahead is None:
            return None
        moment = int((monotonic + self._ahead + delay) * 1000)
        last = self._last
        if last[0] != moment:
            last = self._last = (moment, to_timestamp(moment / 1000))
        return last[1]

    def now(self, delay: float = 0.0) -> str | None:
        return self.at(time.monotonic(), delay)


class Reports(Generic[R]):
    """What is reported about the end of an attempt."""

    def write(self, task: Any, end: AttemptEnd) -> R:
        raise NotImplementedError

    def returned(self, task: Any, handler: Handler, value: Any) -> R:
        """The handler returned this. Raises NotEncoded."""
        return self.write(task, end_of_value(handler, task.calls, value))

    def raised(self, task: Any, handler: Handler, error: BaseException) -> R:
        return self.write(task, end_of_error(handler, task.attempt, error))

    def broken(self, task: Any, error: BaseException) -> R:
        """The report itself could not be written, for example because a retry policy exits."""
        described = {"kind": "handler_error", "message": f"{type(error).__name__} at the end"}
        return self.write(task, AttemptEnd("retry", error=described))


class Reporter(Reports[str]):
    """Turns the end of an attempt into a report for `finish`."""

    def __init__(self, clock: DatabaseClock) -> None:
        self._clock = clock

    def write(self, task: ReportedTask, end: AttemptEnd) -> str:
        if task.ends_at is not None and _ran_out(end) and task.is_past_deadline:
            end = AttemptEnd.failed("deadline_passed", str(DeadlinePassed(task.ends_at)))
        task.status = end.status
        if end.error is not None and end.status in ("retry", "failed"):
            tracing.attempt_failed(end.error)
        report: RunReport | None = end.report if task.run is None else task.run.report(end.status)
        return result_json(
            task.task_id,
            task.token,
            end.status,
            result=_storable_result(end.result) if end.status == "succeeded" else None,
            error=None if end.error is None else json.dumps(end.error),
            run_at=None if end.delay is None else self._clock.now(end.delay),
            started_at=None if task.started is None else self._clock.at(task.started),
            memo=None if report is None else report.as_json(),
            payload=end.payload,
            ends_at=None if task.ends_at is None else to_timestamp(task.ends_at),
        )


def _ran_out(end: AttemptEnd) -> bool:
    return end.status in ("retry", "failed") and end.error is not None and end.error.get("kind") == "timeout"


def _describe_error(error: BaseException) -> dict[str, Any]:
    if isinstance(error, HandlerTimeout):
        return {"kind": "timeout", "message": str(error) or "the time limit of the attempt was passed"}
    return describe(error)


def _storable_result(result: str | None) -> str:
    if result is None:
        return "null"
    return report_json(RawJson(result)) if len(result) > CERTAINLY_STORABLE else result
