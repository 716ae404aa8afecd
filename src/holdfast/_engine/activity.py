"""Activity: what workers have run, in total, per queue and per type, for charts and rankings."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from holdfast._engine.statement import (
    Statement,
    call,
    document,
    integer,
    interval,
    many,
    nothing,
    sql_function,
    text,
)
from holdfast._serialization.text import json_array

Ranking = Literal["busiest", "slowest", "failing"]


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
class ActivityCount:
    """Totals since the statistics of the server began. Two of them give rates."""

    counted_at: datetime
    enqueued: int
    finished: int
    errors: int


@dataclass(frozen=True, slots=True)
class TypeActivity:
    """What workers ran of a queue, a type, or of all, within one step of time. Times are in seconds."""

    at: datetime
    seconds: float
    succeeded: int
    failed: int
    retrying: int
    cancelled: int
    mean_delay: float | None
    mean_run: float | None
    due: int | None
    running: int | None


@dataclass(frozen=True, slots=True)
class RankedType:
    """How many attempts of a type ended how, and how long they ran on average."""

    ranking: Ranking
    queue: str
    type: str
    succeeded: int
    failed: int
    retrying: int
    cancelled: int
    mean_seconds: float | None


@sql_function("queues.count_activity")
def count_activity() -> Statement[ActivityCount]:
    """How many tasks were enqueued and ended, and how many attempts failed."""


@sql_function("queues.take_sample")
def take_sample(*, count_tasks: bool = True) -> Statement[bool]:
    """Record a sample of size and activity. Returns false if another session has just done so."""


@sql_function("queues.list_activity")
def list_activity(since: timedelta, step: timedelta) -> Statement[list[Activity]]:
    """The activity since then, in steps of this length."""


def record_activity(reports: Sequence[str]) -> Statement[None]:
    """Add what a worker has counted since its last report, as JSON objects."""
    return call("queues.record_activity", nothing, {"activity": document(json_array(reports))})


@sql_function("queues.list_activity_of")
def list_activity_of(
    queue: str | None, type_: str | None, since: timedelta, step: timedelta
) -> Statement[list[TypeActivity]]:
    """The activity of a queue or a type."""


def rank_types(
    since: timedelta, queue: str | None = None, max_types: int = 10
) -> Statement[list[RankedType]]:
    """Returns the first of each ranking, in the order of the rankings."""
    arguments = {"since": interval(since), "of_queue": text(queue), "max_types": integer(max_types)}
    return call("queues.rank_types", many(RankedType), arguments)
