"""One instance of a process: its history, what its supervisor would do now, and cancelling it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.sql import SQL, Identifier

from holdfast.engine import Engine, health, processes, tasks
from holdfast.errors import ConfigurationError, TaskNotFound, translate
from holdfast.processes.rules import ProcessDefinition


@dataclass(frozen=True, slots=True)
class HistoryStep:
    at: datetime
    what: str
    reason: str | None
    task_id: UUID | None


def history(
    connection: psycopg.Connection[Any], process: ProcessDefinition, process_id: int
) -> list[HistoryStep]:
    """What happened, in order, as the process's own history function tells it; then what comes next."""
    function = Identifier(process.schema, f"{process.stem}_history")
    query = SQL("select at, what, reason, task_id from {}(%s)").format(function)
    try:
        found = connection.execute(query, [process_id]).fetchall()
    except psycopg.Error as error:
        raise translate(error) from error
    if not found:
        raise TaskNotFound(f"there is no {process.task} {process_id}")
    steps = [HistoryStep(*row) for row in found]
    engine = Engine(connection)
    status = engine.run(processes.process_status(str(process), process_id))
    return steps if status is None or status.task_id is None else _with_next(engine, status.task_id, steps)


def _with_next(engine: Engine, task_id: UUID, steps: list[HistoryStep]) -> list[HistoryStep]:
    """Add the supervisor's errors since its last run, and its next run unless the history has it."""
    failed = [
        HistoryStep(error.occurred_at, "supervisor failed", error.message, task_id)
        for error in engine.run(tasks.task_errors(task_id))
    ]
    past = [step for step in steps if not step.what.startswith("next: ")]
    upcoming = [step for step in steps if step.what.startswith("next: ")]
    task = engine.run(tasks.task_status(task_id))
    if task is None or task.deleted_at is not None or task.finished_at is not None:
        state = "gone" if task is None else "deleted" if task.deleted_at is not None else task.status
        lost = HistoryStep(
            engine.run(health.clock()),
            "no supervisor",
            f"its task is {state}; the leader will enqueue a new one",
            task_id,
        )
        return [*past, *failed, *(step for step in upcoming if "run" not in step.what.split()), lost]
    return [
        *past,
        *failed,
        *(upcoming or [HistoryStep(task.run_at, "next: run of the supervisor", None, task_id)]),
    ]


def plan(connection: psycopg.Connection[Any], process: ProcessDefinition, process_id: int) -> dict[str, Any]:
    """What the supervisor would decide now. Runs it as a worker does, and rolls back."""
    if process.is_python:
        raise ConfigurationError(
            f"the supervisor of {process} is a Python task, which only a worker can run",
            hint=f"See holdfast process show {process} {process_id}, and holdfast runs show with its task.",
        )
    envelope = processes.try_function(connection, process.supervisor, {f"{process.task}_id": process_id})
    if not envelope.get("success"):
        raise TaskNotFound(envelope.get("validation_failure_message") or str(envelope))
    return dict(envelope["payload"])


def cancel(
    connection: psycopg.Connection[Any], process: ProcessDefinition, process_id: int, reason: str | None
) -> str:
    """Cancel the instance with the function that the process has registered."""
    engine = Engine(connection)
    for one in engine.run(processes.registered_processes()):
        if one.process == str(process):
            return engine.run(processes.cancel_process(one.cancel, process_id, reason))
    raise TaskNotFound(f"the process {process} is not registered", hint="Run holdfast process check.")
