"""Queues: how many tasks wait in each and run from it, and pausing them."""

from dataclasses import dataclass
from datetime import datetime

from holdfast.engine.statement import (
    Statement,
    call,
    columns_of,
    many,
    scalar,
    text,
)


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """What waits and what runs in a queue."""

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


def pause(queue: str, reason: str | None = None) -> Statement[bool]:
    """Answers whether the queue was running until now."""
    return call("queues.pause", scalar, {"queue": text(queue), "reason": text(reason)})


def resume(queue: str, reason: str | None = None) -> Statement[bool]:
    """Answers whether the queue was paused until now."""
    return call("queues.resume", scalar, {"queue": text(queue), "reason": text(reason)})


def queue_status() -> Statement[list[QueueStatus]]:
    sql = f"select {columns_of(QueueStatus)} from queues.queue_status answer order by answer.queue"  # noqa: S608 - our names only
    return Statement(sql, (), many(QueueStatus))


def unserved_queues() -> Statement[list[UnservedQueue]]:
    """The one that has waited longest comes first."""
    return call("queues.unserved_queues", many(UnservedQueue), {}, columns_of(UnservedQueue))
