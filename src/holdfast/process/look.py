"""One process: what happened, and what its supervisor would do now."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.sql import SQL, Identifier

from holdfast.errors import TaskNotFound, translate
from holdfast.process.check import Process


@dataclass(frozen=True, slots=True)
class Step:
    at: datetime
    what: str
    reason: str | None
    task_id: UUID | None


def history(connection: psycopg.Connection[Any], process: Process, process_id: int) -> list[Step]:
    """What happened, in order, by the process's own function for it."""
    function = Identifier(process.schema, f"{process.stem}_history")
    query = SQL("select at, what, reason, task_id from {}(%s)").format(function)
    try:
        found = connection.execute(query, [process_id]).fetchall()
    except psycopg.Error as error:
        raise translate(error) from error
    if not found:
        raise TaskNotFound(f"there is no {process.root} {process_id}")
    return [Step(*row) for row in found]


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
