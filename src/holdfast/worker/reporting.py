"""Reports about attempts: one JSON object per task, formatted by hand because there are so many."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.engine.documents import RawJson, report_json
from holdfast.engine.leases import ResultStatus, result_json
from holdfast.errors import PayloadError, ResultError
from holdfast.executors.run_end import RunEnd
from holdfast.handler import Handler
from holdfast.logs import Log
from holdfast.outcome import Cancel, Fail, Snooze
from holdfast.retry import DEFAULT_RETRY, MAX_DELAY_SECONDS, RetryPolicy, next_delay
from holdfast.serialization.failure import brief, error_of, fitted
from holdfast.serialization.failure import describe as describe_exception
from holdfast.worker.job import DatabaseClock, Job

__all__ = ["HandlerTimeout", "NotDecoded", "NotEncoded", "Reporter", "brief", "decode", "ending_of"]

CERTAINLY_STORABLE = 500  # characters: too few to be nested too deeply or to be too long


class HandlerTimeout(BaseException):
    """Raised in a handler that is past its time limit. Not an Exception, so that few catch it by mistake."""


class NotDecoded(Exception):
    """The payload does not fit the handler. Not a PayloadError, which a handler may raise itself."""


class NotEncoded(Exception):
    """JSON cannot represent the result. The handler's transaction is rolled back."""


class RunFailed(Exception):
    """Passed to a retry policy when the process of a run ended without a report of its own."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Reporter:
    """Turns what a handler returned or raised into a report for `finish`."""

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
        return self._result(job, "succeeded", result=result)

    def raised(self, job: Job, handler: Handler, error: BaseException) -> str:
        if isinstance(error, NotDecoded):
            return self.failed(job, "invalid_payload", str(error))
        if isinstance(error, NotEncoded):
            return self.failed(job, "result_not_serializable", str(error))
        delay = next_delay(handler.retry, job.attempt, error)
        described = json.dumps(describe(error))
        if delay is None:
            return self._result(job, "failed", error=described)
        return self._result(job, "retry", error=described, run_at=self._clock.now(delay))

    def broken(self, job: Job, error: BaseException) -> str:
        """The report itself could not be written, for example because a retry policy exits."""
        described = json.dumps({"kind": "handler_error", "message": f"{type(error).__name__} at the end"})
        return self._result(job, "retry", error=described)

    def no_handler(self, job: Job) -> str:
        return self.failed(
            job, "no_handler_registered", f"no_handler_registered: this worker has no handler for {job.type}"
        )

    def no_executor(self, job: Job) -> str:
        """Another worker may have the executor, so the task is retried."""
        return self.retry(
            job, "executor_not_available", f"this worker cannot run tasks of executor {job.executor}"
        )

    def executor_refused(self, job: Job, handler: Handler) -> str:
        """The task asks for an executor that the declaration of its handler rules out."""
        return self.failed(
            job,
            "executor_refused",
            f"the handler of {job.type} is declared with executor={handler.executor!r}, and the task asks "
            f"for {job.executor!r}: enqueue it with the executor {handler.executor}",
        )

    def succeeded(self, job: Job, result: str) -> str:
        """For executors that return the result as JSON."""
        return self._result(job, "succeeded", result=report_json(RawJson(result)))

    def failed(self, job: Job, kind: str, message: str, **detail: Any) -> str:
        """Another attempt would not help."""
        return self._result(job, "failed", error=_error_json(kind, message, detail))

    def retry(self, job: Job, kind: str, message: str, *, delay: float | None = None, **detail: Any) -> str:
        """Retry after `delay` seconds, or after the default delay."""
        seconds = DEFAULT_RETRY.delay(job.attempt, RuntimeError(message)) if delay is None else delay
        run_at = self._clock.now(min(max(0.0, seconds or 0.0), MAX_DELAY_SECONDS))
        return self._result(job, "retry", error=_error_json(kind, message, detail), run_at=run_at)

    def unknown_commit(self, job: Job) -> str:
        """Accepted only if the commit did not happen; then the task is retried."""
        error = json.dumps({"kind": "commit_unknown", "message": "the connection was lost at the commit"})
        return self._result(job, "retry", error=error, run_at=self._clock.now())

    def _outcome(self, job: Job, value: Snooze | Cancel | Fail) -> str:
        if isinstance(value, Snooze):
            seconds = value.seconds if isinstance(value.seconds, float) else value.delay.total_seconds()
            run_at = self._clock.now(min(seconds, MAX_DELAY_SECONDS))
            return self._result(job, "snooze", run_at=run_at)
        if isinstance(value, Fail):
            return self.failed(job, "failed_by_handler", value.reason)
        error = json.dumps(error_of("cancelled_by_handler", value.reason))
        return self._result(job, "cancelled", error=error)

    def _result(
        self,
        job: Job,
        status: ResultStatus,
        *,
        result: str | None = None,
        error: str | None = None,
        run_at: str | None = None,
    ) -> str:
        job.status = status
        started_at = None if job.started is None else self._clock.at(job.started)
        return result_json(
            job.task_id, job.token, status, result=result, error=error, run_at=run_at, started_at=started_at
        )


class RunEnds:
    """Reports about runs in child processes, and records of those whose tasks were taken from this worker."""

    def __init__(self, reporter: Reporter, record_killed: Callable[[Job, str], None], log: Log) -> None:
        self._reporter = reporter
        self._record_killed = record_killed
        self._log = log

    def failed(self, job: Job, retry: RetryPolicy, end: RunEnd) -> str:
        """The child process ended without a report."""
        self._log.warning("run_ended", **job.log_fields, kind=end.kind, why=end.message)
        delay = next_delay(retry, job.attempt, RunFailed(end.kind, end.message))
        return self._report(job, end.kind, end.message, delay, end.detail)

    def raised(self, job: Job, error: Mapping[str, Any], delay: float | None, end: RunEnd) -> str:
        """The run itself reported an error."""
        kind, message = str(error.get("kind")), str(error.get("message"))
        self._log.warning("attempt_failed", **job.log_fields, error=message.partition("\n")[0][:500])
        others = {name: value for name, value in error.items() if name not in ("kind", "message")}
        return self._report(job, kind, message, delay, {**others, **end.detail})

    def killed(self, job: Job, end: RunEnd) -> None:
        """The task is no longer ours, but how its run ended is recorded for people."""
        if end.answer is None:
            self._record_killed(job, json.dumps({**error_of(end.kind, end.message), **fitted(end.detail)}))

    def _report(
        self, job: Job, kind: str, message: str, delay: float | None, detail: Mapping[str, Any]
    ) -> str:
        if delay is None:
            return self._reporter.failed(job, kind, message, **fitted(detail))
        return self._reporter.retry(job, kind, message, delay=delay, **fitted(detail))


def _error_json(kind: str, message: str, detail: dict[str, Any]) -> str:
    return json.dumps({**error_of(kind, message), **detail})


def ending_of(job: Job) -> str:
    """The status that an accepted report led to."""
    if job.status == "retry":
        return "dead_letter" if job.attempt >= job.max_attempts else "retrying"
    return "snoozed" if job.status == "snooze" else job.status


def decode(handler: Handler, payload: str) -> dict[str, Any]:
    try:
        return handler.decode(payload)
    except PayloadError as error:
        raise NotDecoded(str(error)) from error


def describe(error: BaseException) -> dict[str, str]:
    """Return the error as it is stored and shown to people."""
    if isinstance(error, HandlerTimeout):
        return {"kind": "timeout", "message": str(error) or "the time limit of the attempt was passed"}
    return describe_exception(error)
