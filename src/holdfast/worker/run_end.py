"""What is reported of runs in processes of their own, and kept of those that were taken from us."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.executors.run_end import RunEnd
from holdfast.retry import RetryPolicy
from holdfast.serialization.failure import MAX_MESSAGE, fits, next_delay, storable
from holdfast.worker.job import Job
from holdfast.worker.logs import Log
from holdfast.worker.report import Reporter

LEAST_OUTPUT = 100


class RunFailed(Exception):
    """What a retry policy is asked about when a run has not told its end itself."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class RunEnds:
    def __init__(self, reporter: Reporter, log: Log) -> None:
        self.record_killed: Callable[[Job, str], None] = lambda _job, _error: None
        self._reporter = reporter
        self._log = log

    def failed(self, job: Job, retry: RetryPolicy, end: RunEnd) -> str:
        """The process ended without an answer."""
        self._log.warning("run_ended", **job.name, kind=end.kind, why=end.message)
        delay = next_delay(retry, job.attempt, RunFailed(end.kind, end.message))
        return self._told(job, end.kind, end.message, delay, end.detail)

    def raised(self, job: Job, error: Mapping[str, Any], delay: float | None, end: RunEnd) -> str:
        """The run itself has told what went wrong."""
        kind, message = str(error.get("kind")), str(error.get("message"))
        self._log.warning("attempt_failed", **job.name, error=message.partition("\n")[0][:500])
        others = {name: value for name, value in error.items() if name not in ("kind", "message")}
        return self._told(job, kind, message, delay, {**others, **end.detail})

    def killed(self, job: Job, end: RunEnd) -> None:
        """The task is no longer ours, but how its run ended is still worth keeping."""
        if end.answer is None:
            error = {
                "kind": end.kind,
                "message": storable(end.message, MAX_MESSAGE),
                **self.fitted(end.detail),
            }
            self.record_killed(job, json.dumps(error))

    def fitted(self, detail: Mapping[str, Any]) -> dict[str, Any]:
        """As much of it as is kept: of what was printed, the ends."""
        whole = {
            name: storable(value, MAX_MESSAGE) if isinstance(value, str) else value
            for name, value in detail.items()
        }
        most = MAX_MESSAGE
        while not fits([whole, "x" * MAX_MESSAGE]) and most > LEAST_OUTPUT:
            most //= 2
            for name in ("stdout", "stderr", "traceback"):
                if name in whole:
                    whole[name] = storable(whole[name], most)
        return whole

    def _told(self, job: Job, kind: str, message: str, delay: float | None, detail: Mapping[str, Any]) -> str:
        if delay is None:
            return self._reporter.failed(job, kind, message, **self.fitted(detail))
        return self._reporter.retry(job, kind, message, delay=delay, **self.fitted(detail))
