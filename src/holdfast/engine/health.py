"""The engine's clock, its health and its activity."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from holdfast.engine.statement import (
    Statement,
    call,
    columns_of,
    many,
    only,
    scalar,
    span,
)

Level = Literal["green", "amber", "red"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True, slots=True)
class Activity:
    """What the samples of one step say."""

    at: datetime
    due: float
    scheduled: float
    running: float
    enqueued_per_second: float | None
    finished_per_second: float | None
    errors_per_second: float | None
    delay_p50: float | None
    delay_p99: float | None


@dataclass(frozen=True, slots=True)
class HealthLine:
    """One thing that was looked at: about what, as a number and in words, and what to do about it."""

    check_name: str
    level: Level
    subject: str | None
    value: float | None
    message: str
    advice: str | None


@dataclass(frozen=True, slots=True)
class TableChange:
    """What the current transaction has done to a table, in rows."""

    table_name: str
    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class ActivityCount:
    """What was enqueued, ended and went wrong since the server's statistics began."""

    counted_at: datetime
    enqueued: int
    finished: int
    errors: int


def clock() -> Statement[datetime]:
    return call("queues.clock", scalar, {})


def health() -> Statement[list[HealthLine]]:
    """The worst first."""
    return call("queues.health", many(HealthLine), {}, columns_of(HealthLine))


def measure() -> Statement[bool]:
    """Answers whether it was done: not if somebody has just done it."""
    return call("queues.measure", scalar, {})


def count_activity() -> Statement[ActivityCount]:
    """Asked twice, it tells rates."""
    return call("queues.count_activity", only(ActivityCount), {}, columns_of(ActivityCount))


def take_sample() -> Statement[bool]:
    return call("queues.take_sample", scalar, {})


def list_activity(since: timedelta, step: timedelta) -> Statement[list[Activity]]:
    arguments = {"since": span(since), "step": span(step)}
    return call("queues.list_activity", many(Activity), arguments, columns_of(Activity))


def changed_tables() -> Statement[list[TableChange]]:
    """What the current transaction has written, as far as PostgreSQL counts it."""
    counted = """select schemaname || '.' || relname as table_name, n_tup_ins as inserted,
      n_tup_upd as updated, n_tup_del as deleted from pg_catalog.pg_stat_xact_user_tables"""
    sql = f"""select {columns_of(TableChange)} from ({counted}) answer
      where answer.inserted + answer.updated + answer.deleted > 0 order by 1"""  # noqa: S608 - our names only
    return Statement(sql, (), many(TableChange))
