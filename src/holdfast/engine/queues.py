"""Queues: how many tasks wait and run, and pausing and resuming."""

from dataclasses import dataclass
from datetime import datetime

from holdfast.engine.statement import Statement, many, select, sql_function


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


@dataclass(frozen=True, slots=True)
class UnservedQueue:
    """A queue whose due tasks no live worker serves."""

    queue: str
    seconds: float
    message: str
    advice: str


@sql_function("queues.pause")
def pause(queue: str, reason: str | None = None) -> Statement[bool]:
    """Returns true if the queue was running until now."""


@sql_function("queues.resume")
def resume(queue: str, reason: str | None = None) -> Statement[bool]:
    """Returns true if the queue was paused until now."""


def queue_status() -> Statement[list[QueueStatus]]:
    return select(many(QueueStatus), "queues.queue_status", "order by answer.queue")


@sql_function("queues.unserved_queues")
def unserved_queues() -> Statement[list[UnservedQueue]]:
    """Returns the queue that has waited longest first."""
