"""Health and activity: what the engine says of itself."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

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
