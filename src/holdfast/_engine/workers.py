"""Workers: registration, wake-ups, leadership, and recovery of the tasks of lost workers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from holdfast._engine.leases import FleetState
from holdfast._engine.statement import (
    Statement,
    call,
    document,
    many,
    scalar,
    select,
    sql_function,
    text,
)
from holdfast._serialization.text import Json, json_array

WorkerState = Literal["working", "idle", "late", "silent"]
"""`late` has missed two heartbeats; `silent` counts as dead."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker process, which runs tasks."""

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
    memory_bytes: int | None
    finished: int | None
    per_second: float | None
    shard: str | None
    """The name of its shard; None without shards."""


@dataclass(frozen=True, slots=True)
class HeldTask:
    """A task that a worker holds."""

    task_id: UUID
    claimed_at: datetime
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkerLoss:
    """A worker that was lost without retiring, and what became of its tasks."""

    worker_id: str
    hostname: str
    pid: int | None
    started_at: datetime
    last_heartbeat: datetime
    lost_at: datetime
    recovered: int
    dead: int


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that was silent for too long. It is not removed while tasks are left to recover."""

    worker_id: str
    last_heartbeat: datetime
    recovered: int
    dead: int
    removed: bool


@dataclass(frozen=True, slots=True)
class Provenance:
    """The environment that one start of a worker recorded."""

    worker_id: str
    recorded_at: datetime
    environment: Json


@dataclass(frozen=True, slots=True)
class RegisteredType:
    """What a worker registered for a type: the defaults of its tasks, and the schemas of its handler."""

    type: str
    queue: str | None
    priority: int
    max_attempts: int
    timeout: timedelta | None
    deadline: timedelta | None
    lease: timedelta | None
    executor: str
    schema: Json
    registered_at: datetime
    registered_by: str


@sql_function("queues.register_worker")
def register_worker(
    worker_id: str,
    hostname: str,
    *,
    pid: int | None = None,
    version: str | None = None,
    queues: Sequence[str] | None = None,
    type_prefixes: Sequence[str] | None = None,
    concurrency: int = 1,
    timeout: timedelta | None = None,
    heartbeat: timedelta | None = None,
    types: Sequence[str] | None = None,
) -> Statement[int]:
    """Register a worker. Returns the setting max_result_bytes."""


@sql_function("queues.register_types")
def register_types(types: Sequence[Mapping[str, Any]]) -> Statement[int]:
    """Declare the defaults of task types. Returns how many have changed."""


def registered_types() -> Statement[list[RegisteredType]]:
    """For members of holdfast_reader."""
    return select(many(RegisteredType), "queues.registered_type", "order by answer.type")


def retire_worker(worker_id: str, begun: Iterable[str] | None = None) -> Statement[bool]:
    """Returns true if it was registered.

    With what it has begun and not ended (`leases.held_json`), its other leases are given back.
    """
    listed = None if begun is None else document(json_array(begun))
    return call("queues.retire_worker", scalar, {"worker_id": text(worker_id), "begun": listed})


@sql_function("queues.fleet_state")
def fleet_state(worker_id: str) -> Statement[FleetState]:
    """What a worker needs to know of the others."""


@sql_function("queues.recover_workers")
def recover_workers(max_tasks: int | None = None) -> Statement[list[LostWorker]]:
    """Remove workers that were silent for too long, and recover their tasks."""


@sql_function("queues.mark_idle")
def mark_idle(worker_id: str, idle: bool) -> Statement[bool]:
    """Returns true if the worker is registered."""


@sql_function("queues.hold_wakeups")
def hold_wakeups(worker_id: str, queues: Sequence[str]) -> Statement[list[str]]:
    """Suppress notifications of new tasks for half a second. Returns the queues where that succeeded."""


@sql_function("queues.release_wakeups")
def release_wakeups(worker_id: str, queues: Sequence[str]) -> Statement[None]:
    """Let enqueueing wake workers again."""


@sql_function("queues.notify_idle")
def notify_idle(queues: Sequence[str]) -> Statement[bool]:
    """Wake idle workers for tasks that were enqueued meanwhile. Returns true if there were any."""


@sql_function("queues.lead")
def lead(worker_id: str, term: timedelta | None = None) -> Statement[bool]:
    """Become or stay the leader for a term. Returns true if the worker leads now."""


@sql_function("queues.resign")
def resign(worker_id: str) -> Statement[bool]:
    """Give up leadership. Returns true if the worker led."""


def worker_status() -> Statement[list[WorkerStatus]]:
    return select(many(WorkerStatus), "queues.worker_status", "order by answer.worker_id")


@sql_function("queues.held_by")
def held_by(worker_id: str, max_tasks: int | None = None) -> Statement[list[HeldTask]]:
    """Returns the tasks that a worker holds, those that run for the longest time first."""


def worker_losses(limit: int = 10) -> Statement[list[WorkerLoss]]:
    """Returns the workers that were lost last."""
    rest = "order by answer.lost_at desc limit $1::integer"
    return select(many(WorkerLoss), "queues.worker_loss", rest, (limit,))


@sql_function("queues.record_environment")
def record_environment(worker_id: str, environment: Mapping[str, Any]) -> Statement[None]:
    """Record what a worker runs with."""


def provenance(worker_ids: Sequence[str]) -> Statement[list[Provenance]]:
    """Returns the environments that these workers have recorded."""
    rest = "where answer.worker_id = any ($1::text[])"
    return select(many(Provenance), "queues.provenance", rest, (list(worker_ids),))
