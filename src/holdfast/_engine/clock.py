"""The clock of the engine as tests set it. Only databases of tests have the table `queues.test_clock`."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast._engine.statement import Statement, nothing, only, scalar, select


@dataclass(frozen=True, slots=True)
class ClockSetting:
    """Where the clock stands, or None if it runs, and how much it differs from the server's clock."""

    stands_at: datetime | None
    shifted_by: timedelta


def clock_setting() -> Statement[ClockSetting]:
    return select(only(ClockSetting), "queues.test_clock")


def has_test_clock() -> Statement[bool]:
    """Whether the clock of this database can be set."""
    return Statement("select pg_catalog.to_regclass('queues.test_clock') is not null", (), scalar)


def stop_clock(moment: datetime | None = None) -> Statement[None]:
    """Stop the clock at this time, or now."""
    return _change("stands_at = coalesce($1::timestamptz, queues.clock()), shifted_by = '0'", moment)


def advance_clock(span: timedelta) -> Statement[None]:
    return _change("shifted_by = shifted_by + $1::interval", span)


def start_clock(shifted_by: timedelta) -> Statement[None]:
    """Let the clock run, this much ahead of the server's clock."""
    return _change("stands_at = null, shifted_by = $1::interval", shifted_by)


def _change(assignments: str, value: datetime | timedelta | None) -> Statement[None]:
    sql = f"update queues.test_clock set {assignments} returning 1"  # noqa: S608 - our own text
    return Statement(sql, (value,), nothing)
