"""Reports about attempts: one JSON object per task, formatted by hand because there are so many."""

import json
from typing import Any

from holdfast.engine.leases import result_json
from holdfast.executors.attempt import AttemptEnd, end_of_error, end_of_value
from holdfast.handler import Handler
from holdfast.serialization.text import RawJson, report_json
from holdfast.worker.job import DatabaseClock, Job

CERTAINLY_STORABLE = 500  # characters: too few to be nested too deeply or to be too long


class Reporter:
    """Turns the end of an attempt into a report for `finish`."""

    def __init__(self, clock: DatabaseClock) -> None:
        self._clock = clock

    def write(self, job: Job, end: AttemptEnd) -> str:
        job.status = end.status
        return result_json(
            job.task_id,
            job.token,
            end.status,
            result=_storable_result(end.result) if end.status == "succeeded" else None,
            error=None if end.error is None else json.dumps(end.error),
            run_at=None if end.delay is None else self._clock.now(end.delay),
            started_at=None if job.started is None else self._clock.at(job.started),
        )

    def returned(self, job: Job, handler: Handler, value: Any) -> str:
        """The handler returned this. Raises NotEncoded."""
        return self.write(job, end_of_value(handler, value))

    def raised(self, job: Job, handler: Handler, error: BaseException) -> str:
        return self.write(job, end_of_error(handler, job.attempt, error))

    def broken(self, job: Job, error: BaseException) -> str:
        """The report itself could not be written, for example because a retry policy exits."""
        described = {"kind": "handler_error", "message": f"{type(error).__name__} at the end"}
        return self.write(job, AttemptEnd("retry", error=described))


def no_handler(job: Job) -> AttemptEnd:
    message = f"no_handler_registered: this worker has no handler for {job.type}"
    return AttemptEnd.failed("no_handler_registered", message)


def no_executor(job: Job) -> AttemptEnd:
    """Another worker may have the executor, so the task is retried."""
    message = f"this worker cannot run tasks of executor {job.executor}"
    return AttemptEnd.retry(job.attempt, "executor_not_available", message)


def executor_refused(job: Job, handler: Handler) -> AttemptEnd:
    """The task asks for an executor that the declaration of its handler rules out."""
    return AttemptEnd.failed(
        "executor_refused",
        f"the handler of {job.type} is declared with executor={handler.executor!r}, and the task asks "
        f"for {job.executor!r}: enqueue it with the executor {handler.executor}",
    )


def ending_of(job: Job) -> str:
    """The status that an accepted report led to."""
    if job.status == "retry":
        return "dead_letter" if job.attempt >= job.max_attempts else "retrying"
    return "snoozed" if job.status == "snooze" else job.status


def _storable_result(result: str | None) -> str:
    if result is None:
        return "null"
    return report_json(RawJson(result)) if len(result) > CERTAINLY_STORABLE else result
