"""Limits: how many tasks of a queue, a type or a key run at once, and how fast they start."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from holdfast._engine.statement import Statement, call, integer, many, select, sql_function, text

Subject = Literal["queue", "type"]


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A limit of a queue or a type, and how much of it is used."""

    subject: str
    name: str
    max_running: int | None
    per_key: int | None
    rate: int | None
    per: timedelta | None
    running: int
    may_start: int | None
    set_at: datetime
    set_by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class WaitingKey:
    """A concurrency key whose due tasks wait until one that runs ends. Counts at most 100 waiting tasks."""

    queue: str
    namespace: str
    concurrency_key: str
    waiting: int
    running: int
    oldest_due: datetime
    running_task_id: UUID | None


@sql_function("queues.set_limit")
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
    """Replace the limits of a queue or a type. None means unlimited."""


@sql_function("queues.drop_limit")
def drop_limit(subject: Subject, name: str) -> Statement[bool]:
    """Returns true if there was a limit."""


def limit_status() -> Statement[list[LimitStatus]]:
    return select(many(LimitStatus), "queues.limit_status", "order by 1, 2")


def list_waiting_keys(queue: str | None = None, max_keys: int = 50) -> Statement[list[WaitingKey]]:
    """Those with most waiting tasks first."""
    arguments = {"of_queue": text(queue), "max_keys": integer(max_keys)}
    return call("queues.list_waiting_keys", many(WaitingKey), arguments)


@sql_function("queues.tidy_lanes")
def tidy_lanes() -> Statement[int]:
    """Remove empty lanes. Returns how many were removed."""
