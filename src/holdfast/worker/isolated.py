"""The executor `process`: a registered handler, in a child that the worker can kill."""

import contextlib
import functools
import os
import pwd
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.executors.child_pool import ChildPool, ChildPoolSizes
from holdfast.executors.child_process import ChildBoot, ChildBootFailed, start_child
from holdfast.executors.command import chosen_variables
from holdfast.executors.origin import Origin
from holdfast.executors.process_tree import weaknesses
from holdfast.executors.run_end import RunBounds, RunEnd
from holdfast.executors.spawner_client import SpawnerClient
from holdfast.handler import Handler
from holdfast.logs import Log
from holdfast.outcome import Cancel, Snooze
from holdfast.serialization.failure import brief, fitted
from holdfast.settings import WITHHELD, Settings
from holdfast.worker.job import Job
from holdfast.worker.reporting import Reporter, RunEnds

SHUTDOWN_GRACE = 1.0
LEASE_MARGIN = 0.5
USUAL_VARIABLES = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "PYTHON*", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "HOLDFAST_HOME",
)  # fmt: skip
NOT_FOUND = "no child process can import the application: it has to be a global name of a module"


class ProcessExecutor:
    """Children that have imported the application, one run at a time in each."""

    needs_handler = True

    def __init__(
        self,
        *,
        worker_id: str,
        spawner: SpawnerClient,
        find_origin: Callable[[], Origin | None],
        wanted: bool,
        settings: Settings,
        ends: RunEnds,
        reporter: Reporter,
        tell_progress: Callable[[], None],
        log: Log,
    ) -> None:
        self._worker_id = worker_id
        self._spawner = spawner
        self._find_origin = find_origin
        self._wanted = wanted
        self._settings = settings
        self._ends = ends
        self._reporter = reporter
        self._tell_progress = tell_progress
        self._log = log
        self._pool: ChildPool | None = None

    async def prepare(self) -> None:
        """Where the application has such tasks, have children ready, and say what they are not kept from."""
        if not self._wanted:
            return
        if missing := weaknesses():
            self._log.warning("isolation_limited", not_enforced=missing)
        pool = self._opened()
        if pool is not None:
            pool.warm()

    async def run(self, job: Job, handler: Handler | None) -> str | None:
        assert handler is not None  # noqa: S101 - tasks without one have failed before
        pool = self._opened()
        if pool is None:
            return self._reporter.retry(job, "executor_not_available", NOT_FOUND)
        bounds = bounds_of(job, handler, self._settings)
        try:
            end, cancelled = await pool.run(
                _order(job),
                bounds,
                functools.partial(self._progress, job),
                functools.partial(stop_of, job, bounds),
                fresh=handler.fresh,
            )
        except ChildBootFailed as error:
            return self._reporter.retry(job, "executor_failed", error.message, **fitted(error.detail))
        if cancelled and not (end.answer is not None and job.stop == "shutdown"):
            self._ends.killed(job, end)
            return None
        if end.answer is None:
            return self._ends.failed(job, handler.retry, end)
        return self._answered(job, handler, end.answer, end)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
        await self._spawner.close()

    def _opened(self) -> ChildPool | None:
        """None if no child could find the application."""
        if self._pool is None:
            origin, settings = self._find_origin(), self._settings
            if origin is None:
                self._log.error("application_not_found", why=NOT_FOUND)
                return None
            boot = ChildBoot(
                origin,
                settings.log_format,
                settings.log_level,
                self._worker_id,
                variables_of(settings),
                settings.process_user,
            )
            start = functools.partial(start_child, self._spawner, boot, settings.output_limit, pass_on)
            self._pool = ChildPool(start, _sizes(settings), self._boot_failed)
        return self._pool

    def _answered(self, job: Job, handler: Handler, answer: Mapping[str, Any], end: RunEnd) -> str:
        match answer:
            case {"status": "succeeded", "result": result}:
                return self._reporter.succeeded(job, result)
            case {"status": "snooze", "seconds": seconds}:
                return self._reporter.returned(job, handler, Snooze(seconds))
            case {"status": "cancelled", "reason": reason}:
                return self._reporter.returned(job, handler, Cancel(reason))
            case {"status": "retry", "error": error, "delay": delay}:
                return self._ends.raised(job, error, delay, end)
        raise ValueError(answer)

    def _progress(self, job: Job, progress: dict[str, Any]) -> None:
        job.progress = progress
        self._tell_progress()

    def _boot_failed(self, error: ChildBootFailed) -> None:
        self._log.error("child_not_started", error=brief(error), stderr=error.detail.get("stderr"))


def variables_of(settings: Settings) -> dict[str, str]:
    """The environment of a child: what a program needs anyway, and what the settings list."""
    chosen = chosen_variables((*USUAL_VARIABLES, *settings.process_env))
    if settings.process_user is not None:
        account = pwd.getpwnam(settings.process_user)
        chosen |= {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name}
    withheld = [name for name in ("DATABASE_URL",) if name in os.environ and name not in chosen]
    return {**chosen, WITHHELD: ",".join(withheld)} if withheld else chosen


def bounds_of(job: Job, handler: Handler, settings: Settings) -> RunBounds:
    return RunBounds(
        timeout=job.timeout or handler.timeout,
        output=settings.output_limit,
        grace=settings.kill_grace.total_seconds(),
        resources=handler.resources,
    )


def stop_of(job: Job, bounds: RunBounds) -> tuple[str, float]:
    """Why a run has to end, and how long that may take: another worker must not begin before."""
    why = job.stop or "shutdown"
    left = job.lease_ends - time.monotonic() - LEASE_MARGIN
    grace = {"shutdown": min(bounds.grace, SHUTDOWN_GRACE), "lost": min(bounds.grace, left)}.get(
        why, bounds.grace
    )
    return why, max(0.0, grace)


def pass_on(name: str, data: bytes) -> None:
    """What a run prints comes out of the worker, too, as it would if it ran there."""
    if data:
        stream = getattr(sys, name)
        with contextlib.suppress(AttributeError):  # one that somebody has put in its place
            stream.buffer.write(data)
            stream.buffer.flush()


def _sizes(settings: Settings) -> ChildPoolSizes:
    return ChildPoolSizes(
        warm=min(settings.process_pool, settings.worker_concurrency),
        most=settings.worker_concurrency,
        runs=settings.process_runs,
        memory=settings.process_memory,
    )


def _order(job: Job) -> dict[str, Any]:
    return {
        "task_id": job.task_id,
        "type": job.type,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "payload": job.payload,
        "metadata": job.metadata,
    }
