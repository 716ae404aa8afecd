"""What queues.health says, by check and subject."""

from dataclasses import asdict
from typing import Any
from uuid import UUID

from holdfast._engine.health import health_line
from support.engine import Connection, Row, call
from support.workshop import Workshop


def health(conn: Connection) -> list[Row]:
    """The lines, with their words: for each of them there are some."""
    lines = [asdict(health_line(**row)) for row in call(conn, "queues.health", {})]
    assert not [line for line in lines if line["message"].startswith(f"{line['code']} {{")]
    return lines


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
    """The code of the trouble of a run, once health names it."""
    query = "select code from queues.health() where check_name = 'troubled_run' and subject = %s"
    return str((await shop.until(query, str(task_id)))["code"])


async def nothing_troubled(shop: Workshop) -> None:
    """Returns once health names no run."""
    await shop.until(
        "select where not exists (select from queues.health() where check_name = 'troubled_run')"
    )
