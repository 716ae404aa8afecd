"""How an attempt is reported: one JSON object per task, written by hand because there are so many."""

import json
import traceback
from typing import Any

from holdfast.errors import PayloadError, ResultError
from holdfast.handler import Handler
from holdfast.outcome import Cancel, Fail, Snooze
from holdfast.retry import Exponential
from holdfast.worker.clock import DatabaseClock
from holdfast.worker.job import Job

MOST_TRACEBACK = 16_000
DEFAULT_RETRY = Exponential()


class HandlerTimeout(BaseException):
    """Thrown into a handler that is past its limit. Not an Exception, so that few catch it by mistake."""


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
            return self._failed(job, "result_not_serializable", str(error))
        return f'{self._head(job, "succeeded")},"result":{result}}}'

    def raised(self, job: Job, handler: Handler, error: BaseException) -> str:
        if isinstance(error, PayloadError):
            return self._failed(job, "invalid_payload", str(error))
        delay = _delay(handler, job.attempt, error)
        status = "failed" if delay is None else "retry"
        described = json.dumps(_describe(error))
        when = "" if delay is None else f',"run_at":"{self._clock.now(delay)}"'
        return f'{self._head(job, status)},"error":{described}{when}}}'

    def no_handler(self, job: Job) -> str:
        return self._failed(
            job, "no_handler_registered", f"no_handler_registered: this worker has no handler for {job.type}"
        )

    def unknown_commit(self, job: Job) -> str:
        """Accepted only if the commit did not happen: then the task is tried again."""
        error = json.dumps({"kind": "commit_unknown", "message": "the connection was lost at the commit"})
        return f'{self._head(job, "retry")},"error":{error},"run_at":"{self._clock.now()}"}}'

    def _outcome(self, job: Job, value: Snooze | Cancel | Fail) -> str:
        if isinstance(value, Snooze):
            return f'{self._head(job, "snooze")},"run_at":"{self._clock.now(value.delay.total_seconds())}"}}'
        if isinstance(value, Fail):
            return self._failed(job, "failed_by_handler", value.reason)
        error = json.dumps({"kind": "cancelled_by_handler", "message": storable(value.reason)})
        return f'{self._head(job, "cancelled")},"error":{error}}}'

    def _failed(self, job: Job, kind: str, message: str) -> str:
        error = json.dumps({"kind": kind, "message": storable(message)})
        return f'{self._head(job, "failed")},"error":{error}}}'

    def _head(self, job: Job, status: str) -> str:
        started = None if job.started is None else self._clock.at(job.started)
        at = "" if started is None else f',"started_at":"{started}"'
        return f'{{"task_id":"{job.task_id}","token":{job.token},"status":"{status}"{at}'


def storable(text: str) -> str:
    """What PostgreSQL cannot keep becomes the replacement character."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _delay(handler: Handler, attempt: int, error: BaseException) -> float | None:
    try:
        return handler.retry.delay(attempt, error)
    except Exception:  # noqa: BLE001 - a policy that fails must not keep the task from being settled
        return DEFAULT_RETRY.delay(attempt, error)


def _describe(error: BaseException) -> dict[str, str]:
    if isinstance(error, HandlerTimeout):
        return {
            "kind": "timeout",
            "message": storable(str(error) or "the time limit of the attempt was passed"),
        }
    name = type(error).__qualname__
    try:
        message = f"{name}: {error}"
    except Exception:  # noqa: BLE001 - an exception whose text cannot be had is still an exception
        message = name
    lines = "".join(traceback.format_exception(error, limit=-40))
    return {
        "kind": "handler_error",
        "message": storable(message[:8000]),
        "exception": storable(f"{type(error).__module__}.{name}"),
        "traceback": storable(lines[-MOST_TRACEBACK:]),
    }
