"""Statements about limits: how much of a queue, a type or a key runs at once, and how fast it starts."""

from datetime import timedelta
from typing import Literal

from holdfast.engine.statement import (
    Statement,
    call,
    columns_of,
    integer,
    many,
    nothing,
    scalar,
    span,
    text,
)
from holdfast.model import LimitStatus

Subject = Literal["queue", "type"]


def set_limit(
    subject: Subject,
    name: str,
    *,
    max_running: int | None = None,
    per_key: int | None = None,
    rate: int | None = None,
    per: timedelta | None = None,
    reason: str | None = None,
) -> Statement[None]:
    """What is not given is not limited."""
    arguments = {
        "subject": text(subject),
        "name": text(name),
        "max_running": integer(max_running),
        "per_key": integer(per_key),
        "rate": integer(rate),
        "per": span(per),
        "reason": text(reason),
    }
    return call("queues.set_limit", nothing, arguments)


def drop_limit(subject: Subject, name: str) -> Statement[bool]:
    """Answers whether there was one."""
    return call("queues.drop_limit", scalar, {"subject": text(subject), "name": text(name)})


def limit_status() -> Statement[list[LimitStatus]]:
    sql = f"select {columns_of(LimitStatus)} from queues.limit_status answer order by 1, 2"  # noqa: S608 - our names only
    return Statement(sql, (), many(LimitStatus))


def tidy_slots() -> Statement[int]:
    """Answers how many were removed."""
    return call("queues.tidy_slots", scalar, {})


def tidy_lanes() -> Statement[int]:
    """Answers how many were removed."""
    return call("queues.tidy_lanes", scalar, {})
