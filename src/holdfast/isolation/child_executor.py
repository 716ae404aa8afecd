"""The executors `process` and `ray`: handlers in child processes, which the worker can kill.

Those of `ray` have the handler run on a Ray cluster.
"""

import functools
import json
import os
import pwd
from collections.abc import Callable
from typing import Any

from holdfast._serialization.failure import brief, fitted
from holdfast._telemetry import tracing
from holdfast._telemetry.logs import Log
from holdfast._worker.attempt import AttemptEnd
from holdfast._worker.executor import CannotStart, ExecutorTask, pass_on_output, reason_to_stop
from holdfast._worker.handler import Handler
from holdfast._worker.origin import Origin
from holdfast._workflows.journal import Journal
from holdfast.isolation.child_intake import BYTES_PER_SECOND, MESSAGES_PER_SECOND
from holdfast.isolation.child_messages import Told
from holdfast.isolation.child_pool import ChildPool, ChildPoolSizes
from holdfast.isolation.child_process import ChildBootFailed, RunCalls, start_child
from holdfast.isolation.child_protocol import ChildBoot
from holdfast.isolation.child_run import answer_question
from holdfast.isolation.command_run import chosen_variables
from holdfast.isolation.process_tree import weaknesses
from holdfast.isolation.run_end import RunBounds
from holdfast.isolation.spawner_client import SpawnerClient
from holdfast.resources import size_text
from holdfast.settings import WITHHELD, Settings, variable_of

USUAL_VARIABLES = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "PYTHON*", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "HOLDFAST_HOME",
    "DJANGO_SETTINGS_MODULE",
)  # fmt: skip
THROTTLED = (
    f"it writes more than {MESSAGES_PER_SECOND} messages or {size_text(BYTES_PER_SECOND)} a second"
    " to its worker, so it has to wait: return less from steps, and start fewer tasks at a time"
)
NOT_FOUND = "no child process can import the application: it has to be a global name of a module"


class ChildExecutor:
    """Child processes that have imported the application; each makes one attempt at a time."""

    needs_handler = True

    def __init__(
        self,
        *,
        worker_id: str,
        spawner: SpawnerClient,
        find_origin: Callable[[], Origin | None],
        starts_early: bool,
        settings: Settings,
        send_progress: Callable[[], None],
        record_killed: Callable[[Any, str], None],
        open_journal: Callable[[Any], Journal],
        max_result_bytes: Callable[[], int],
        log: Log,
        on_ray: bool = False,
    ) -> None:
        """With `starts_early`, child processes are started before the first task needs one."""
        self._worker_id = worker_id
        self._spawner = spawner
        self._find_origin = find_origin
        self._starts_early = starts_early
        self._settings = settings
        self._send_progress = send_progress
        self._record_killed = record_killed
        self._open_journal = open_journal
        self._max_result_bytes = max_result_bytes
        self._log = log
        self._on_ray = on_ray
        self._pool: ChildPool | None = None

    async def prepare(self) -> None:
        """Start child processes if the application has such tasks, and log what is not enforced here."""
        if not self._starts_early:
            return
        if missing := weaknesses(self._settings.process_user):
            self._log.warning("isolation_limited", not_enforced=missing)
        pool = self._open_pool()
        if pool is not None:
            pool.warm()

    async def run(self, job: ExecutorTask, handler: Handler | None) -> AttemptEnd | None:
        assert handler is not None  # noqa: S101 - a task without one has failed before
        pool = self._open_pool()
        if pool is None:
            raise CannotStart("executor_not_available", NOT_FOUND)
        bounds = self._bounds(job, handler)
        try:
            end, cancelled = await pool.run(
                _order(job),
                bounds,
                RunCalls(
                    functools.partial(self._tell, job, self._open_journal(job)),
                    functools.partial(self._throttled, job),
                ),
                functools.partial(reason_to_stop, job, bounds),
                fresh=handler.fresh,
            )
        except ChildBootFailed as error:
            raise CannotStart("executor_failed", error.message, **fitted(error.detail)) from error
        if cancelled and (end.answer is None or job.stop != "shutdown"):
            if end.answer is None:
                self._record_killed(job, json.dumps(end.as_error()))
            return None
        if end.answer is None:
            self._log.warning("run_ended", **job.log_fields, kind=end.kind, why=end.message)
            return end.as_attempt_end(handler.retry, job.attempt)
        return self._answered(job, end.answer, end.detail)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
        await self._spawner.close()

    def _open_pool(self) -> ChildPool | None:
        """None if child processes cannot import the application."""
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
                child_variables(settings, ("RAY_*",) if self._on_ray else ()),
                settings.process_user,
                on_ray=self._on_ray,
                max_result_bytes=self._max_result_bytes(),
            )
            start = functools.partial(start_child, self._spawner, boot, settings.output_limit, pass_on_output)
            self._pool = ChildPool(start, _sizes(settings), self._boot_failed)
        return self._pool

    def _bounds(self, job: ExecutorTask, handler: Handler) -> RunBounds:
        return RunBounds(
            timeout=job.limit(handler.timeout),
            output=self._settings.output_limit,
            grace=self._settings.kill_grace.total_seconds(),
            resources=handler.resources,
        )

    def _answered(self, job: ExecutorTask, answer: AttemptEnd, detail: Any) -> AttemptEnd:
        """An error is stored with the output of the run."""
        if answer.error is None or answer.status == "cancelled":
            return answer
        message = str(answer.error.get("message"))
        self._log.warning("attempt_failed", **job.log_fields, error=message.partition("\n")[0][:500])
        error = fitted({**answer.error, **detail})
        return AttemptEnd(answer.status, error=error, delay=answer.delay, report=answer.report)

    def _tell(
        self, job: ExecutorTask, journal: Journal, told: Told, reply: Callable[[dict[str, Any]], None]
    ) -> None:
        if told.progress is None:
            answer_question(journal, told, reply)
            return
        job.progress = told.progress
        self._send_progress()

    def _throttled(self, job: ExecutorTask) -> None:
        job.trouble = "run_throttled"
        self._log.warning("run_throttled", **job.log_fields, why=THROTTLED)

    def _boot_failed(self, error: ChildBootFailed) -> None:
        self._log.error("child_not_started", error=brief(error), stderr=error.detail.get("stderr"))


def child_variables(settings: Settings, others: tuple[str, ...] = ()) -> dict[str, str]:
    """The environment of a child process: what every program needs, and what the settings list."""
    chosen = chosen_variables((*USUAL_VARIABLES, *others, *settings.process_env))
    if not settings.record_step_arguments:
        chosen[variable_of("record_step_arguments")] = "false"
    if settings.process_user is not None:
        account = pwd.getpwnam(settings.process_user)
        chosen |= {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name}
    withheld = [name for name in ("DATABASE_URL",) if name in os.environ and name not in chosen]
    return {**chosen, WITHHELD: ",".join(withheld)} if withheld else chosen


def _sizes(settings: Settings) -> ChildPoolSizes:
    return ChildPoolSizes(
        warm=min(settings.process_pool, settings.worker_concurrency),
        max_size=settings.worker_concurrency,
        runs=settings.process_runs,
        memory=settings.process_memory,
    )


def _order(job: ExecutorTask) -> dict[str, Any]:
    return {
        "task_id": job.task_id,
        "type": job.type,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "now": job.now(),
        "payload": job.payload,
        "metadata": tracing.carried(job.metadata),
    }
