"""Queues, their limits and the workers that serve them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from holdfast.model.document import Json

WorkerState = Literal["working", "idle", "late", "silent"]
"""Late: two heartbeats did not come. Silent: it counts as dead."""


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
class LimitStatus:
    """A limit of a queue or a type, and how far it is used."""

    subject: str
    name: str
    max_running: int | None
    per_key: int | None
    rate: int | None
    per: timedelta | None
    running: int
    may_start: int | None
    set_at: datetime
    set_by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A process that runs tasks."""

    worker_id: str
    hostname: str
    pid: int | None
    version: str | None
    queues: list[str]
    type_prefixes: list[str]
    concurrency: int
    in_flight: int
    idle: bool
    started_at: datetime
    last_heartbeat: datetime
    live: bool
    leader: bool
    term: int | None
    leader_until: datetime | None
    timeout: timedelta
    running: int
    heartbeat: timedelta
    state: WorkerState


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that was silent for too long. One that is not removed yet held more than was asked for."""

    worker_id: str
    last_heartbeat: datetime
    recovered: int
    dead: int
    removed: bool


@dataclass(frozen=True, slots=True)
class Provenance:
    """What one start of a worker ran with."""

    worker_id: str
    recorded_at: datetime
    environment: Json


@dataclass(frozen=True, slots=True)
class UnservedQueue:
    """A queue whose due tasks no live worker serves."""

    queue: str
    seconds: float
    message: str
    advice: str
