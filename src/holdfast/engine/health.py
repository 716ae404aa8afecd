"""The engine's clock and its health."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from holdfast.engine.statement import Statement, call, many, select, sql_function

Level = Literal["green", "amber", "red"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True, slots=True)
class HealthLine:
    """The result of one health check, with advice and the latest error if something is wrong."""

    check_name: str
    level: Level
    subject: str | None
    value: float | None
    message: str
    advice: str | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TableChange:
    """How many rows of a table the current transaction has changed."""

    table_name: str
    inserted: int
    updated: int
    deleted: int


@sql_function("queues.clock")
def clock() -> Statement[datetime]:
    """The time of the engine."""


def health() -> Statement[list[HealthLine]]:
    """Returns the most severe first."""
    return call("queues.health", many(HealthLine), {})


def changed_tables() -> Statement[list[TableChange]]:
    """Returns what the current transaction has written, as far as PostgreSQL counts it."""
    counted = """(select schemaname || '.' || relname as table_name, n_tup_ins as inserted,
      n_tup_upd as updated, n_tup_del as deleted from pg_catalog.pg_stat_xact_user_tables)"""
    rest = "where answer.inserted + answer.updated + answer.deleted > 0 order by 1"
    return select(many(TableChange), counted, rest)
