"""What queues.health says, by check and subject."""

from typing import Any
from uuid import UUID

from support.engine import Connection, Row, call
from support.workshop import Workshop


def health(conn: Connection) -> list[Row]:
    return call(conn, "queues.health", {})


def line(conn: Connection, check: str, subject: str | None = None) -> Row:
    (found,) = [
        row for row in health(conn) if row["check_name"] == check and subject in (None, row["subject"])
    ]
    return found


def level(conn: Connection, check: str, subject: str | None = None) -> str:
    return str(line(conn, check, subject)["level"])


def checks(conn: Connection) -> set[str]:
    return {row["check_name"] for row in health(conn)}


def register(conn: Connection, worker_id: str = "w1", **more: Any) -> None:
    call(conn, "queues.register_worker", {"worker_id": worker_id, **more})


async def troubled(shop: Workshop, task_id: UUID) -> str:
    """What health says of a run, once it names it."""
    query = "select message from queues.health() where check_name = 'troubled_run' and subject = %s"
    return str((await shop.until(query, str(task_id)))["message"])


async def nothing_troubled(shop: Workshop) -> None:
    """Returns once health names no run."""
    await shop.until(
        "select where not exists (select from queues.health() where check_name = 'troubled_run')"
    )
