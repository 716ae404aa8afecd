"""One instance of a process: its history, what its supervisor would do now, and cancelling it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from holdfast._engine import AsyncEngine, Engine, health, processes, tasks
from holdfast._engine.processes import HistoryStep, ProcessStatus
from holdfast._engine.tasks import ENDED, TaskError, TaskEvent, TaskLine, TaskStatus
from holdfast.errors import ConfigurationError, NotFound
from holdfast.processes.rules import ProcessDefinition

MAX_TASKS = 200
"""Tasks of an instance that are looked at, the newest first."""
NUDGED = "nudged: "
_RUN = re.compile(r"run (\d+): (.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class EngineStep(HistoryStep):
    """A step that the engine knows of, and not the process: its reason quotes no facts."""


@dataclass(frozen=True, slots=True)
class SupervisorRun:
    """A run of the supervisor, and the task that runs it next."""

    run: int
    at: datetime
    decision: str
    reason: str | None
    next_task_id: UUID | None


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a process. `status` is None if its row was removed because it ended long ago."""

    process: str
    process_id: int
    status: ProcessStatus | None
    timeline: list[HistoryStep]
    outstanding: list[TaskLine]
    runs: list[SupervisorRun]
    supervisor: TaskLine | None


async def read_instance(engine: AsyncEngine, process: str, process_id: int) -> Instance | None:
    """Its facts in order, the attempts that have not ended, and the runs of its supervisor."""
    steps = await engine.run(processes.process_history(process, process_id))
    status = await engine.run(processes.process_status(process, process_id))
    if status is None and not steps:
        return None
    runs = [run for step in steps if (run := _run_of(step)) is not None]
    own = {run.next_task_id for run in runs} | ({status.task_id} if status else set())
    known = {step.task_id for step in steps if step.task_id is not None} | {one for one in own if one}
    lines = await engine.run(tasks.task_lines(sorted(known, reverse=True)[:MAX_TASKS]))
    supervised = [line.task_id for line in lines if line.task_id in own]
    nudges = [_nudge_of(one) for one in await engine.run(tasks.events_of(supervised)) if _is_nudge(one)]
    timeline = sorted([*steps, *nudges], key=_order) if nudges else steps
    if status is not None and status.task_id is not None:
        errors = await engine.run(tasks.task_errors(status.task_id))
        task = await engine.run(tasks.task_status(status.task_id))
        now = await engine.run(health.clock())
        timeline = with_next(timeline, status.task_id, task, errors, now)
    return Instance(
        process,
        process_id,
        status,
        timeline,
        [line for line in lines if line.task_id not in own and line.status not in ENDED],
        runs,
        next((line for line in lines if status is not None and line.task_id == status.task_id), None),
    )


def history(
    connection: psycopg.Connection[Any], process: ProcessDefinition, process_id: int
) -> list[HistoryStep]:
    """What happened, in order, as the process's own history function tells it; then what comes next."""
    engine = Engine(connection)
    steps = engine.run(processes.process_history(str(process), process_id))
    if not steps:
        raise NotFound(f"there is no {process.task} {process_id}")
    status = engine.run(processes.process_status(str(process), process_id))
    if status is None or status.task_id is None:
        return steps
    task = engine.run(tasks.task_status(status.task_id))
    errors = engine.run(tasks.task_errors(status.task_id))
    return with_next(steps, status.task_id, task, errors, engine.run(health.clock()))


def with_next(
    steps: Sequence[HistoryStep],
    task_id: UUID,
    task: TaskStatus | None,
    errors: Sequence[TaskError],
    now: datetime,
) -> list[HistoryStep]:
    """Add the supervisor's errors since its last run, and its next run unless the history has it."""
    failed = [HistoryStep(error.occurred_at, "supervisor failed", error.message, task_id) for error in errors]
    past = [step for step in steps if not _is_next(step)]
    upcoming = [step for step in steps if _is_next(step)]
    if task is None or task.deleted_at is not None or task.finished_at is not None:
        state = "gone" if task is None else "deleted" if task.deleted_at is not None else task.status
        lost = EngineStep(
            now, "no supervisor", f"its task is {state}; the leader will enqueue a new one", task_id
        )
        return [*past, *failed, *(step for step in upcoming if "run" not in step.what.split()), lost]
    return [
        *past,
        *failed,
        *(upcoming or [EngineStep(task.run_at, "next: run of the supervisor", None, task_id)]),
    ]


def _is_next(step: HistoryStep) -> bool:
    return step.what.startswith("next: ")


def _run_of(step: HistoryStep) -> SupervisorRun | None:
    found = _RUN.fullmatch(step.what)
    return found and SupervisorRun(int(found[1]), step.at, found[2], step.reason, step.task_id)


def _is_nudge(event: TaskEvent) -> bool:
    """True for an act of a person. The handlers of the process nudge its supervisor without a reason."""
    return event.event_type == "rescheduled" and (event.reason or "").startswith(NUDGED)


def _nudge_of(event: TaskEvent) -> HistoryStep:
    reason = (event.reason or "").removeprefix(NUDGED)
    return EngineStep(event.occurred_at, f"nudged by {event.actor}", reason, event.task_id)


def _order(step: HistoryStep) -> tuple[bool, datetime]:
    return _is_next(step), step.at


def plan(connection: psycopg.Connection[Any], process: ProcessDefinition, process_id: int) -> dict[str, Any]:
    """What the supervisor would decide now. Runs it as a worker does, and rolls back."""
    if process.is_python:
        raise ConfigurationError(
            f"the supervisor of {process} is a Python task, which only a worker can run",
            hint=f"See holdfast process show {process} {process_id}, and holdfast runs show with its task.",
        )
    found = Engine(connection).run(processes.process_status(str(process), process_id))
    envelope = processes.try_function(
        connection,
        process.supervisor,
        {f"{process.task}_id": process_id},
        None if found is None else found.wait_key,
    )
    if not envelope.get("success"):
        raise NotFound(envelope.get("validation_failure_message") or str(envelope))
    return dict(envelope["payload"])


def cancel(
    connection: psycopg.Connection[Any], process: ProcessDefinition, process_id: int, reason: str | None
) -> str:
    """Cancel the instance with the function that the process has registered."""
    return Engine(connection).run(processes.cancel_process(str(process), process_id, reason))
