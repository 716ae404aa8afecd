"""The engine's clock and its health."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from holdfast._engine.statement import Row, Rows, Statement, call, many, select, sql_function
from holdfast._serialization.text import Json, load_json
from holdfast._words.health import health_words

Level = Literal["green", "amber", "red"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True, slots=True)
class HealthLine:
    """What one health check found, in words as well, and the latest error if something is wrong."""

    check_name: str
    level: Level
    subject: str | None
    value: float | None
    code: str
    facts: Json
    message: str
    advice: str | None
    error: str | None = None

    @property
    def name(self) -> str | None:
        """The subject without the name of a shard, which a front puts before it."""
        return _name(self.subject, self.facts)


@dataclass(frozen=True, slots=True)
class TableChange:
    """How many rows of a table the current transaction has changed."""

    table_name: str
    inserted: int
    updated: int
    deleted: int


def health_line(
    check_name: str,
    level: Level,
    subject: str | None,
    *,
    value: float | None,
    code: str,
    facts: Mapping[str, Any],
    error: str | None = None,
) -> HealthLine:
    words = health_words(code, level, _name(subject, facts), value, facts)
    return HealthLine(
        check_name, level, subject, value, code, dict(facts), words.message, words.advice, error
    )


def _name(subject: str | None, facts: Mapping[str, Any]) -> str | None:
    return subject and subject.removeprefix(f"{facts.get('shard')} ")


def _lines(rows: Sequence[Row]) -> list[HealthLine]:
    return [
        health_line(*row[:3], value=row[3], code=row[4], facts=load_json(row[5]), error=row[6])
        for row in rows
    ]


HEALTH_LINES = Rows(
    "answer.check_name, answer.level, answer.subject, answer.value, answer.code, answer.facts::text, "
    "answer.error",
    _lines,
)


@sql_function("queues.clock")
def clock() -> Statement[datetime]:
    """The time of the engine."""


def health() -> Statement[list[HealthLine]]:
    """Returns the most severe first."""
    return call("queues.health", HEALTH_LINES, {})


def changed_tables() -> Statement[list[TableChange]]:
    """Returns what the current transaction has written, as far as PostgreSQL counts it."""
    counted = """(select schemaname || '.' || relname as table_name, n_tup_ins as inserted,
      n_tup_upd as updated, n_tup_del as deleted from pg_catalog.pg_stat_xact_user_tables)"""
    rest = "where answer.inserted + answer.updated + answer.deleted > 0 order by 1"
    return select(many(TableChange), counted, rest)
