"""The executors `process` and `ray`: handlers in child processes, which the worker can kill.

Those of `ray` have the handler run on a Ray cluster.
"""

import functools
import importlib.util
import json
import os
import pwd
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from holdfast._serialization.failure import brief, fitted
from holdfast._telemetry import tracing
from holdfast._worker.app_import import find_origin
from holdfast._worker.executor import CannotStart, Executor, ExecutorTask, ExecutorWorker, unusable
from holdfast._worker.handler import Handler
from holdfast._worker.report import AttemptEnd
from holdfast._worker.subscription import WorkerApp
from holdfast._workflows.journal import Journal
from holdfast.errors import ConfigurationError
from holdfast.isolation.account_check import check_account, check_interpreter
from holdfast.isolation.child_intake import BYTES_PER_SECOND, MESSAGES_PER_SECOND
from holdfast.isolation.child_messages import Told
from holdfast.isolation.child_pool import ChildPool, ChildPoolSizes
from holdfast.isolation.child_process import ChildBootFailed, RunCalls, start_child
from holdfast.isolation.child_protocol import ChildBoot
from holdfast.isolation.child_run import answer_question
from holdfast.isolation.command_run import chosen_variables
from holdfast.isolation.process_tree import weaknesses
from holdfast.isolation.run_end import RunBounds, reason_to_stop
from holdfast.isolation.run_output import pass_on_output
from holdfast.isolation.spawner_client import open_spawner
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


class ChildExecutor(Executor):
    """Child processes that have imported the application; each makes one attempt at a time."""

    name: ClassVar[str] = "process"
    variables: ClassVar[tuple[str, ...]] = ()
    """Further ones of the worker's environment that a child process gets."""

    def __init__(self, worker: ExecutorWorker) -> None:
        self._worker = worker
        self._settings = worker.settings
        self._log = worker.log
        self._spawner = worker.share(open_spawner)
        self._pool: ChildPool | None = None

    @classmethod
    def check(
        cls, settings: Settings, app: WorkerApp | None = None, handlers: Sequence[Handler] = ()
    ) -> None:
        if settings.process_user is not None:
            place = unusable("process_user", settings.process_user)
            check_account(place, settings.process_user)
            check_interpreter(place, settings.process_user)
        if app is not None and handlers and find_origin(app, app.origin) is None:
            raise ConfigurationError(
                f"no child process could import the application, and {handlers[0].type} is declared with "
                f"executor={cls.name!r}",
                hint="Make the App a global name of a module.",
            )

    async def prepare(self) -> None:
        """Start child processes if the application has such tasks, and log what is not enforced here."""
        if all(handler.executor != self.name for handler in self._worker.app.handlers.values()):
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
                    functools.partial(self._tell, job, self._worker.open_journal(job)),
                    functools.partial(self._throttled, job),
                ),
                functools.partial(reason_to_stop, job, bounds),
                fresh=handler.fresh,
            )
        except ChildBootFailed as error:
            raise CannotStart("executor_failed", error.message, **fitted(error.detail)) from error
        if cancelled and (end.answer is None or job.stop != "shutdown"):
            if end.answer is None:
                self._worker.record_killed(job, json.dumps(end.as_error()))
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
            worker, settings = self._worker, self._settings
            origin = find_origin(worker.app, worker.app.origin)
            if origin is None:
                self._log.error("application_not_found", why=NOT_FOUND)
                return None
            boot = ChildBoot(
                origin,
                settings.log_format,
                settings.log_level,
                worker.worker_id,
                child_variables(settings, self.variables),
                settings.process_user,
                on_ray=self.name == "ray",
                max_result_bytes=worker.max_result_bytes(),
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
        self._worker.send_progress()

    def _throttled(self, job: ExecutorTask) -> None:
        job.trouble = "run_throttled"
        self._log.warning("run_throttled", **job.log_fields, why=THROTTLED)

    def _boot_failed(self, error: ChildBootFailed) -> None:
        self._log.error("child_not_started", error=brief(error), stderr=error.detail.get("stderr"))


class RayExecutor(ChildExecutor):
    """The child process has the handler run on a Ray cluster, and can be killed as any other."""

    name = "ray"
    variables = ("RAY_*",)

    @classmethod
    def check(
        cls, settings: Settings, app: WorkerApp | None = None, handlers: Sequence[Handler] = ()
    ) -> None:
        if handlers and importlib.util.find_spec("ray") is None:
            raise ConfigurationError(
                f"Ray is not installed, and {handlers[0].type} is declared with executor='ray'",
                hint="Install the extra: pip install 'holdfast-pg[ray]'",
            )
        super().check(settings, app, handlers)


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
