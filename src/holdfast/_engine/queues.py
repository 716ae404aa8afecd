"""Queues: how many tasks wait and run, and pausing and resuming."""

from dataclasses import dataclass
from datetime import datetime

from holdfast._engine.health import HEALTH_LINES, HealthLine
from holdfast._engine.statement import Statement, call, many, select, sql_function


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """How many tasks of a queue wait and run, and whether it is paused."""

    queue: str
    due: int
    scheduled: int
    running: int
    oldest_due: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    live_workers: int


@sql_function("queues.pause")
def pause(queue: str, reason: str | None = None) -> Statement[bool]:
    """Returns true if the queue was running until now."""


@sql_function("queues.resume")
def resume(queue: str, reason: str | None = None) -> Statement[bool]:
    """Returns true if the queue was paused until now."""


def queue_status() -> Statement[list[QueueStatus]]:
    return select(many(QueueStatus), "queues.queue_status", "order by answer.queue")


def unserved_queues() -> Statement[list[HealthLine]]:
    """Returns what health says of queues whose due tasks no live worker serves, the longest wait first."""
    return call("queues.unserved_queues", HEALTH_LINES, {})
