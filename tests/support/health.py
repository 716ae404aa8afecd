"""What queues.health says, by check and subject."""

from typing import Any

from support.engine import Connection, Row, call


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
