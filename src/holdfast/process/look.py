"""One process: what happened, what its supervisor would do now, and what ends it."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.sql import SQL, Identifier

from holdfast.engine import Engine
from holdfast.errors import TaskNotFound, translate
from holdfast.model import ProcessStatus
from holdfast.process.rules import Process


@dataclass(frozen=True, slots=True)
class Step:
    at: datetime
    what: str
    reason: str | None
    task_id: UUID | None


def history(connection: psycopg.Connection[Any], process: Process, process_id: int) -> list[Step]:
    """What happened, in order, by the process's own function for it; then what comes next."""
    function = Identifier(process.schema, f"{process.stem}_history")
    query = SQL("select at, what, reason, task_id from {}(%s)").format(function)
    try:
        found = connection.execute(query, [process_id]).fetchall()
    except psycopg.Error as error:
        raise translate(error) from error
    if not found:
        raise TaskNotFound(f"there is no {process.root} {process_id}")
    engine = Engine(connection)
    status = engine.process_status(str(process), process_id)
    return [*(Step(*row) for row in found), *(_to_come(engine, status) if status else [])]


def _to_come(engine: Engine, status: ProcessStatus) -> list[Step]:
    """The errors of the supervisor's task since it last ran, and when it runs next."""
    if status.task_id is None:
        return []
    failed = [
        Step(error.occurred_at, "supervisor failed", error.message, status.task_id)
        for error in engine.task_errors(status.task_id)
    ]
    task = engine.task_status(status.task_id)
    if task is None or task.deleted_at is not None or task.finished_at is not None:
        how = "gone" if task is None else "deleted" if task.deleted_at is not None else task.status
        return [*failed, Step(status.updated_at, "no supervisor", f"its task is {how}", status.task_id)]
    return [*failed, Step(task.run_at, "next run", None, status.task_id)]


def plan(connection: psycopg.Connection[Any], process: Process, process_id: int) -> dict[str, Any]:
    """What the supervisor would decide now: it runs as a worker runs it, and all of it is rolled back."""
    payload = json.dumps({f"{process.root}_id": process_id})
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("set local role holdfast_worker")
            row = connection.execute(
                "select internal.run_function(%s, %s)", [process.supervisor, payload]
            ).fetchone()
    except psycopg.Error as error:
        raise translate(error) from error
    answer = row[0] if row else {}
    if not answer.get("success"):
        raise TaskNotFound(answer.get("validation_failure_message") or str(answer))
    return dict(answer["payload"])


def cancel(connection: psycopg.Connection[Any], process: Process, process_id: int, reason: str | None) -> str:
    """End it by the function that it has registered for that."""
    engine = Engine(connection)
    for one in engine.registered_processes():
        if one.process == str(process):
            return engine.cancel_process(one.cancel, process_id, reason)
    raise TaskNotFound(f"the process {process} is not registered", hint="See holdfast process check.")
