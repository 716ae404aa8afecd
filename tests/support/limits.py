"""Limits, and tasks of the type `mail.send` that they hold back."""

from typing import Any

from support.engine import Connection, Row, call, claim, enqueue_many

MAIL = ["mail"]


def set_limit(conn: Connection, subject: str, name: str, **limits: Any) -> None:
    call(conn, "queues.set_limit", {"subject": subject, "name": name, **limits})


def take(conn: Connection, count: int = 100, **arguments: Any) -> list[Row]:
    return claim(conn, max_tasks=count, queues=MAIL, **arguments)


def fill(conn: Connection, count: int, type: str = "mail.send", **more: Any) -> list[Any]:  # noqa: A002
    return [row["task_id"] for row in enqueue_many(conn, [{"type": type, **more}] * count)]
