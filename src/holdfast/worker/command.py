"""The executor `command`: an external program from the configuration."""

import asyncio
import functools
from collections.abc import Mapping
from typing import Any

from holdfast.executors.command import CommandPlan, CommandRun, chosen_variables
from holdfast.executors.process_tree import weaknesses
from holdfast.executors.run_end import RunBounds, RunEnd
from holdfast.executors.spawner_client import ProcessNotStarted, SpawnerClient
from holdfast.handler import Handler
from holdfast.logs import Log
from holdfast.resources import NO_RESOURCE_LIMITS
from holdfast.retry import DEFAULT_RETRY
from holdfast.serialization.failure import fitted
from holdfast.settings import Command, Settings
from holdfast.worker.isolated import pass_on, stop_of
from holdfast.worker.job import Job
from holdfast.worker.reporting import Reporter, RunEnds


class CommandExecutor:
    """Which command runs a task is a matter of its type, and of the worker's configuration alone."""

    needs_handler = False

    def __init__(
        self, *, spawner: SpawnerClient, settings: Settings, ends: RunEnds, reporter: Reporter, log: Log
    ) -> None:
        self._spawner = spawner
        self._settings = settings
        self._ends = ends
        self._reporter = reporter
        self._log = log

    async def prepare(self) -> None:
        if self._settings.commands and (missing := weaknesses()):
            self._log.warning("isolation_limited", not_enforced=missing)

    async def run(self, job: Job, handler: Handler | None) -> str | None:
        found = command_for(job.type, self._settings.commands)
        if found is None:
            message = f"this worker has no command for tasks of type {job.type}"
            return self._reporter.retry(job, "executor_not_available", message)
        bounds = bounds_of(found[1], self._settings, job, handler)
        run = CommandRun(plan_of(*found, **_told(job)), bounds, functools.partial(pass_on, "stderr"))
        try:
            end, cancelled = await self._end_of(run, job, bounds)
        except ProcessNotStarted as error:
            return self._reporter.retry(job, "executor_failed", str(error))
        if cancelled:
            self._ends.killed(job, end)
            return None
        return self._report(job, handler, end)

    async def close(self) -> None:
        await self._spawner.close()

    async def _end_of(self, run: CommandRun, job: Job, bounds: RunBounds) -> tuple[RunEnd, bool]:
        """Whatever happens to this call, the run is over when it ends."""
        running = asyncio.ensure_future(run.run(self._spawner, job.payload.encode()))
        cancelled = False
        while not running.done():
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                cancelled = True
                run.stop(*stop_of(job, bounds))
            except ProcessNotStarted:
                break
        return running.result(), cancelled

    def _report(self, job: Job, handler: Handler | None, end: RunEnd) -> str:
        retry = DEFAULT_RETRY if handler is None else handler.retry
        if end.answer is None:
            return self._ends.failed(job, retry, end)
        if end.answer["success"]:
            return self._reporter.succeeded(job, end.answer["payload"] or "null")
        if end.answer["validation_failure"] is not None:
            message = end.answer["validation_failure"]
            return self._reporter.failed(job, "validation_failure", message, **fitted(end.detail))
        return self._ends.failed(job, retry, RunEnd("command_failed", end.answer["error"], detail=end.detail))


def command_for(task_type: str, commands: Mapping[str, Command]) -> tuple[str, Command] | None:
    """The one that names the type, or the longest beginning of it."""
    fitting = [(command.suits(task_type), name) for name, command in commands.items()]
    best, name = max(fitting, default=(0, ""))
    return (name, commands[name]) if best else None


def plan_of(name: str, command: Command, **told: str) -> CommandPlan:
    return CommandPlan(
        name=name,
        arguments=command.argv,
        environment={**chosen_variables(command.environment), **told},
        directory=command.directory,
        user=command.user,
    )


def bounds_of(command: Command, settings: Settings, job: Job | None, handler: Handler | None) -> RunBounds:
    """What the task says goes first, then its handler, then the command."""
    seconds = None if command.timeout is None else command.timeout.total_seconds()
    own = NO_RESOURCE_LIMITS if handler is None else handler.resources
    return RunBounds(
        timeout=(job.timeout if job else None) or (handler.timeout if handler else None) or seconds,
        output=settings.output_limit,
        grace=settings.kill_grace.total_seconds(),
        resources=command.resources if own == NO_RESOURCE_LIMITS else own,
    )


def _told(job: Job) -> dict[str, Any]:
    return {
        "HOLDFAST_TASK_ID": job.task_id,
        "HOLDFAST_TASK_TYPE": job.type,
        "HOLDFAST_ATTEMPT": str(job.attempt),
        "HOLDFAST_MAX_ATTEMPTS": str(job.max_attempts),
    }
