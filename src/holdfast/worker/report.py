"""How an attempt is reported: one JSON object per task, written by hand because there are so many."""

import json
import math
import traceback
from typing import Any

from holdfast.engine.documents import report_json
from holdfast.errors import PayloadError, ResultError
from holdfast.handler import Handler
from holdfast.model import RawJson
from holdfast.outcome import Cancel, Fail, Snooze
from holdfast.retry import Exponential
from holdfast.worker.clock import DatabaseClock
from holdfast.worker.job import Job

MOST_MESSAGE = 8_000
MOST_TRACEBACK = 16_000
MOST_ERROR_BYTES = 60_000  # finish keeps 64 KiB of it
CERTAINLY_STORABLE = 500  # characters: too few to be nested too deeply, or to be too long
LONGEST_DELAY = 90 * 365 * 86400.0  # finish takes what is a century away for a mistake
DEFAULT_RETRY = Exponential()


class HandlerTimeout(BaseException):
    """Thrown into a handler that is past its limit. Not an Exception, so that few catch it by mistake."""


class NotDecoded(Exception):
    """A payload that does not fit. Of ours, because a handler may raise a PayloadError of its own."""


class NotEncoded(Exception):
    """A result that JSON cannot hold. What the handler's transaction has written is rolled back with it."""


class Reporter:
    """Turns what a handler returned or raised into what `finish` takes."""

    def __init__(self, clock: DatabaseClock) -> None:
        self._clock = clock

    def returned(self, job: Job, handler: Handler, value: Any) -> str:
        if isinstance(value, Snooze | Cancel | Fail):
            return self._outcome(job, value)
        try:
            result = handler.encode(value)
        except ResultError as error:
            raise NotEncoded(str(error)) from error
        if len(result) > CERTAINLY_STORABLE:
            result = report_json(RawJson(result))
        return f'{self._head(job, "succeeded")},"result":{result}}}'

    def raised(self, job: Job, handler: Handler, error: BaseException) -> str:
        if isinstance(error, NotDecoded):
            return self.failed(job, "invalid_payload", str(error))
        if isinstance(error, NotEncoded):
            return self.failed(job, "result_not_serializable", str(error))
        delay = _delay(handler, job.attempt, error)
        described = json.dumps(describe(error))
        if delay is None:
            return f'{self._head(job, "failed")},"error":{described}}}'
        return f'{self._head(job, "retry")},"error":{described},"run_at":"{self._clock.now(delay)}"}}'

    def broken(self, job: Job, error: BaseException) -> str:
        """When the end of an attempt could not even be described, by a retry policy that exits, say."""
        told = json.dumps({"kind": "handler_error", "message": f"{type(error).__name__} at the end"})
        return f'{self._head(job, "retry")},"error":{told}}}'

    def no_handler(self, job: Job) -> str:
        return self.failed(
            job, "no_handler_registered", f"no_handler_registered: this worker has no handler for {job.type}"
        )

    def no_executor(self, job: Job) -> str:
        """Another worker may have it, so the task is tried again."""
        return self.retry(
            job, "executor_not_available", f"this worker cannot run tasks of executor {job.executor}"
        )

    def succeeded(self, job: Job, result: str) -> str:
        """For executors that have the result as JSON."""
        return f'{self._head(job, "succeeded")},"result":{report_json(RawJson(result))}}}'

    def failed(self, job: Job, kind: str, message: str, **detail: Any) -> str:
        """Not worth another attempt."""
        return f'{self._head(job, "failed")},"error":{_told(kind, message, detail)}}}'

    def retry(self, job: Job, kind: str, message: str, *, delay: float | None = None, **detail: Any) -> str:
        """To be tried again after so many seconds; without, after the usual ones."""
        seconds = DEFAULT_RETRY.delay(job.attempt, RuntimeError(message)) if delay is None else delay
        run_at = self._clock.now(min(max(0.0, seconds or 0.0), LONGEST_DELAY))
        return f'{self._head(job, "retry")},"error":{_told(kind, message, detail)},"run_at":"{run_at}"}}'

    def unknown_commit(self, job: Job) -> str:
        """Accepted only if the commit did not happen: then the task is tried again."""
        error = json.dumps({"kind": "commit_unknown", "message": "the connection was lost at the commit"})
        return f'{self._head(job, "retry")},"error":{error},"run_at":"{self._clock.now()}"}}'

    def _outcome(self, job: Job, value: Snooze | Cancel | Fail) -> str:
        if isinstance(value, Snooze):
            seconds = value.seconds if isinstance(value.seconds, float) else value.delay.total_seconds()
            run_at = self._clock.now(min(seconds, LONGEST_DELAY))
            return f'{self._head(job, "snooze")},"run_at":"{run_at}"}}'
        if isinstance(value, Fail):
            return self.failed(job, "failed_by_handler", value.reason)
        error = json.dumps({"kind": "cancelled_by_handler", "message": storable(value.reason, MOST_MESSAGE)})
        return f'{self._head(job, "cancelled")},"error":{error}}}'

    def _head(self, job: Job, status: str) -> str:
        job.status = status
        started = None if job.started is None else self._clock.at(job.started)
        at = "" if started is None else f',"started_at":"{started}"'
        return f'{{"task_id":"{job.task_id}","token":{job.token},"status":"{status}"{at}'


def _told(kind: str, message: str, detail: dict[str, Any]) -> str:
    return json.dumps({"kind": kind, "message": storable(message, MOST_MESSAGE), **detail})


def ending_of(job: Job) -> str:
    """What an accepted report led to."""
    if job.status == "retry":
        return "dead_letter" if job.attempt >= job.max_attempts else "retrying"
    return "snoozed" if job.status == "snooze" else job.status


def brief(error: BaseException) -> str:
    """One line for the log; all of it is kept with the task."""
    lines = _text_of(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:500]}" if lines else type(error).__name__


def decode(handler: Handler, payload: str) -> dict[str, Any]:
    try:
        return handler.decode(payload)
    except PayloadError as error:
        raise NotDecoded(str(error)) from error


def storable(text: str, most: int) -> str:
    """What PostgreSQL cannot keep becomes the replacement character; of a long text, both ends are kept."""
    if len(text) > most:
        text = f"{text[: most // 2]}\n… {len(text) - most} characters left out …\n{text[-most // 2 :]}"
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def describe(error: BaseException) -> dict[str, str]:
    """For people to read, and small enough to be kept whole."""
    if isinstance(error, HandlerTimeout):
        message = str(error) or "the time limit of the attempt was passed"
        return {"kind": "timeout", "message": message}
    name = type(error).__qualname__
    described = {
        "kind": "handler_error",
        "message": storable(f"{name}: {_text_of(error)}", MOST_MESSAGE),
        "exception": storable(f"{type(error).__module__}.{name}", MOST_MESSAGE),
    }
    for most in (MOST_TRACEBACK, MOST_TRACEBACK // 4):
        described["traceback"] = storable(_traceback_of(error), most)
        if len(json.dumps(described, ensure_ascii=False).encode()) <= MOST_ERROR_BYTES:
            return described
    del described["traceback"]
    return described


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as problem:  # noqa: BLE001 - an exception whose text cannot be had is still one
        return f"(its text cannot be had: {type(problem).__name__})"


def _traceback_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error, limit=-40))
    except BaseException as problem:  # noqa: BLE001 - as above
        return f"(the traceback cannot be had: {type(problem).__name__})"


def _delay(handler: Handler, attempt: int, error: BaseException) -> float | None:
    """Seconds until the next attempt. A policy that fails must not keep the task from being settled."""
    try:
        delay = handler.retry.delay(attempt, error)
        if delay is None:
            return None
        if not math.isfinite(delay):
            raise ValueError(delay)  # noqa: TRY301 - to the default, as any other failure of a policy
        return min(max(0.0, delay), LONGEST_DELAY)
    except Exception:  # noqa: BLE001 - whatever it is
        return DEFAULT_RETRY.delay(attempt, error)
