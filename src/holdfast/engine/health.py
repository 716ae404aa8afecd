"""The engine's clock, its health and its activity."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from holdfast.engine.statement import (
    Statement,
    boolean,
    call,
    interval,
    many,
    only,
    scalar,
    select,
)

Level = Literal["green", "amber", "red"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True, slots=True)
class Activity:
    """The averages of the samples within one step of time."""

    at: datetime
    due: float | None
    scheduled: float | None
    running: float | None
    enqueued_per_second: float | None
    finished_per_second: float | None
    errors_per_second: float | None
    delay_p50: float | None
    delay_p99: float | None


@dataclass(frozen=True, slots=True)
class HealthLine:
    """The result of one health check, with advice if something is wrong."""

    check_name: str
    level: Level
    subject: str | None
    value: float | None
    message: str
    advice: str | None


@dataclass(frozen=True, slots=True)
class TableChange:
    """How many rows of a table the current transaction has changed."""

    table_name: str
    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class ActivityCount:
    """Totals since the statistics of the server began. Two of them give rates."""

    counted_at: datetime
    enqueued: int
    finished: int
    errors: int


def clock() -> Statement[datetime]:
    return call("queues.clock", scalar, {})


def health() -> Statement[list[HealthLine]]:
    """Returns the most severe first."""
    return call("queues.health", many(HealthLine), {})


def count_activity() -> Statement[ActivityCount]:
    return call("queues.count_activity", only(ActivityCount), {})


def take_sample(*, count_tasks: bool = True) -> Statement[bool]:
    """Record a sample of size and activity. Returns false if another session has just done so."""
    return call("queues.take_sample", scalar, {"count_tasks": boolean(count_tasks)})


def list_activity(since: timedelta, step: timedelta) -> Statement[list[Activity]]:
    arguments = {"since": interval(since), "step": interval(step)}
    return call("queues.list_activity", many(Activity), arguments)


def changed_tables() -> Statement[list[TableChange]]:
    """Returns what the current transaction has written, as far as PostgreSQL counts it."""
    counted = """(select schemaname || '.' || relname as table_name, n_tup_ins as inserted,
      n_tup_upd as updated, n_tup_del as deleted from pg_catalog.pg_stat_xact_user_tables)"""
    rest = "where answer.inserted + answer.updated + answer.deleted > 0 order by 1"
    return select(many(TableChange), counted, rest)
