"""The executor `command`: external programs that the configuration names."""

import asyncio
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast._serialization.failure import fitted
from holdfast._worker.envelope import Envelope
from holdfast._worker.executor import CannotStart, Executor, ExecutorTask, ExecutorWorker
from holdfast._worker.handler import Handler
from holdfast._worker.report import AttemptEnd, NotEncoded, check_answer, end_of_not_encoded
from holdfast._worker.subscription import WorkerApp
from holdfast.errors import ConfigurationError
from holdfast.isolation.account_check import check_account
from holdfast.isolation.command_run import CommandPlan, CommandRun, chosen_variables, find_program
from holdfast.isolation.process_tree import weaknesses
from holdfast.isolation.run_end import RunBounds, RunEnd, reason_to_stop
from holdfast.isolation.run_output import pass_on_output
from holdfast.isolation.spawner_client import ProcessNotStarted, open_spawner
from holdfast.resources import NO_RESOURCE_LIMITS
from holdfast.retry import DEFAULT_RETRY
from holdfast.settings import Settings
from holdfast.settings.commands import Command


class CommandExecutor(Executor):
    """The type of a task and the worker's configuration decide which command runs it, nothing else."""

    needs_handler = False

    def __init__(self, worker: ExecutorWorker) -> None:
        self._spawner = worker.share(open_spawner)
        self._settings = worker.settings
        self._record_killed = worker.record_killed
        self._log = worker.log

    @classmethod
    def check(
        cls, settings: Settings, app: WorkerApp | None = None, handlers: Sequence[Handler] = ()
    ) -> None:
        del app
        for name, command in settings.commands.items():
            _check_command(name, command)
        for handler in handlers:
            if command_for(handler.type, settings.commands) is None:
                raise ConfigurationError(
                    f"no command runs {handler.type}, which is declared with executor='command'",
                    hint="Add one to [tool.holdfast.commands] whose types name it, or do not serve its"
                    " queue.",
                )

    async def prepare(self) -> None:
        """Log what is not enforced on this platform."""
        if self._settings.commands and (missing := weaknesses()):
            self._log.warning("isolation_limited", not_enforced=missing)

    async def run(self, job: ExecutorTask, handler: Handler | None) -> AttemptEnd | None:
        found = command_for(job.type, self._settings.commands)
        if found is None:
            message = f"this worker has no command for tasks of type {job.type}"
            raise CannotStart("executor_not_available", message)
        bounds = bounds_of(found[1], self._settings, job, handler)
        run = CommandRun(
            plan_of(*found, **_variables(job)), bounds, functools.partial(pass_on_output, "stderr")
        )
        try:
            end, cancelled = await self._run(run, job, bounds)
        except ProcessNotStarted as error:
            raise CannotStart("executor_failed", str(error)) from error
        if cancelled:
            if end.answer is None:
                self._record_killed(job, json.dumps(end.as_error()))
            return None
        return self._attempt_end(job, handler, end)

    async def close(self) -> None:
        await self._spawner.close()

    async def _run(
        self, run: CommandRun, job: ExecutorTask, bounds: RunBounds
    ) -> tuple[RunEnd[Envelope], bool]:
        """Return when the run is over, even if this call is cancelled, and say whether it was."""
        running = asyncio.ensure_future(run.run(self._spawner, job.payload.encode()))
        cancelled = False
        while not running.done():
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                cancelled = True
                run.stop(*reason_to_stop(job, bounds))
            except ProcessNotStarted:
                break
        return running.result(), cancelled

    def _attempt_end(self, job: ExecutorTask, handler: Handler | None, end: RunEnd[Envelope]) -> AttemptEnd:
        envelope = end.answer
        if envelope is not None and envelope.succeeded:
            try:
                check_answer(handler, envelope.payload or "null")
            except NotEncoded as error:
                return end_of_not_encoded(error)
            return AttemptEnd.succeeded(envelope.payload or "null")
        if envelope is not None and envelope.validation_failure is not None:
            message = envelope.validation_failure
            return AttemptEnd.failed("validation_failure", message, **fitted(end.detail))
        if envelope is not None:
            end = RunEnd("command_failed", envelope.error or "", detail=end.detail)
        self._log.warning("run_ended", **job.log_fields, kind=end.kind, why=end.message)
        return end.as_attempt_end(DEFAULT_RETRY if handler is None else handler.retry, job.attempt)


def command_for(task_type: str, commands: Mapping[str, Command]) -> tuple[str, Command] | None:
    """The command that names this type or, if none does, its longest prefix."""
    fitting = [(command.suits(task_type), name) for name, command in commands.items()]
    best, name = max(fitting, default=(0, ""))
    return (name, commands[name]) if best else None


def plan_of(name: str, command: Command, **variables: str) -> CommandPlan:
    return CommandPlan(
        name=name,
        arguments=command.argv,
        environment={**chosen_variables(command.environment), **variables},
        directory=command.directory,
        user=command.user,
    )


def bounds_of(
    command: Command, settings: Settings, job: ExecutorTask | None, handler: Handler | None
) -> RunBounds:
    """The task decides first, then its handler, then the command."""
    seconds = None if command.timeout is None else command.timeout.total_seconds()
    own = NO_RESOURCE_LIMITS if handler is None else handler.resources
    return RunBounds(
        timeout=seconds if job is None else job.limit(handler.timeout if handler else None, seconds),
        output=settings.output_limit,
        grace=settings.kill_grace.total_seconds(),
        resources=command.resources if own == NO_RESOURCE_LIMITS else own,
    )


def _variables(job: ExecutorTask) -> dict[str, Any]:
    return {
        "HOLDFAST_TASK_ID": job.task_id,
        "HOLDFAST_TASK_TYPE": job.type,
        "HOLDFAST_ATTEMPT": str(job.attempt),
        "HOLDFAST_MAX_ATTEMPTS": str(job.max_attempts),
    }


def _check_command(name: str, command: Command) -> None:
    place = f"commands.{name}"
    if command.directory is not None and not command.directory.is_dir():
        raise ConfigurationError(
            f"{place}.directory {str(command.directory)!r} cannot be used: it is not a directory"
        )
    if find_program(command.argv[0], command.directory) is None:
        raise ConfigurationError(
            f"{place}.argv {command.argv[0]!r} cannot be used: there is no such program",
            hint="Give a path to a file that may be executed, a name in PATH, or python.",
        )
    if command.user is not None:
        check_account(f"{place}.user {command.user!r} cannot be used", command.user)
