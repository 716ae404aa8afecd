"""Workers: registration, wake-ups, leadership, and recovery of the tasks of lost workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from holdfast.engine.documents import Json
from holdfast.engine.statement import (
    Statement,
    boolean,
    call,
    columns_of,
    document,
    integer,
    many,
    nothing,
    scalar,
    span,
    text,
    texts,
)

WorkerState = Literal["working", "idle", "late", "silent"]
"""Late: two heartbeats did not come. Silent: it counts as dead."""


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
) -> Statement[None]:
    arguments = {
        "worker_id": text(worker_id),
        "hostname": text(hostname),
        "pid": integer(pid),
        "version": text(version),
        "queues": texts(queues),
        "type_prefixes": texts(type_prefixes),
        "concurrency": integer(concurrency),
        "timeout": span(timeout),
        "heartbeat": span(heartbeat),
    }
    return call("queues.register_worker", nothing, arguments)


def register_types(types: Sequence[Mapping[str, Any]]) -> Statement[int]:
    """Declare what holds for tasks of these types that do not say otherwise. Returns how many it changed."""
    return call("queues.register_types", scalar, {"types": document(list(types))})


def retire_worker(worker_id: str) -> Statement[bool]:
    """Answers whether it was registered."""
    return call("queues.retire_worker", scalar, {"worker_id": text(worker_id)})


def is_registered(worker_id: str) -> Statement[bool]:
    return call("queues.is_registered", scalar, {"worker_id": text(worker_id)})


def recover_workers(max_tasks: int | None = None) -> Statement[list[LostWorker]]:
    """Remove workers that were silent for too long, and put back what they held."""
    arguments = {"max_tasks": integer(max_tasks)}
    return call("queues.recover_workers", many(LostWorker), arguments, columns_of(LostWorker))


def mark_idle(worker_id: str, idle: bool) -> Statement[bool]:
    """Returns whether the worker is registered."""
    return call("queues.mark_idle", scalar, {"worker_id": text(worker_id), "idle": boolean(idle)})


def hold_wakeups(worker_id: str, queues: Sequence[str]) -> Statement[list[str]]:
    """Hold the wake-ups of these queues for half a second: enqueueing sends none. Returns those it holds."""
    return call("queues.keep_door", scalar, {"worker_id": text(worker_id), "queues": texts(queues)})


def release_wakeups(worker_id: str, queues: Sequence[str]) -> Statement[None]:
    """Let enqueueing wake workers again."""
    return call("queues.leave_door", nothing, {"worker_id": text(worker_id), "queues": texts(queues)})


def notify_idle(queues: Sequence[str]) -> Statement[bool]:
    """Wake idle workers if tasks have come. Returns whether any have."""
    return call("queues.ring", scalar, {"queues": texts(queues)})


def lead(worker_id: str, term: timedelta | None = None) -> Statement[bool]:
    """Returns whether the worker leads now."""
    return call("queues.lead", scalar, {"worker_id": text(worker_id), "term": span(term)})


def term_left() -> Statement[timedelta | None]:
    """How long until the present term ends, unless it is prolonged; None if nobody leads."""
    return call("queues.term_left", scalar, {})


def resign(worker_id: str) -> Statement[bool]:
    """Answers whether it led."""
    return call("queues.resign", scalar, {"worker_id": text(worker_id)})


def worker_status() -> Statement[list[WorkerStatus]]:
    sql = f"select {columns_of(WorkerStatus)} from queues.worker_status answer order by answer.worker_id"  # noqa: S608 - our names only
    return Statement(sql, (), many(WorkerStatus))


def record_environment(worker_id: str, environment: Mapping[str, Any]) -> Statement[None]:
    arguments = {"worker_id": text(worker_id), "environment": document(environment)}
    return call("queues.record_environment", nothing, arguments)


def provenance(worker_ids: Sequence[str]) -> Statement[list[Provenance]]:
    """What these workers ran with."""
    where = "answer.worker_id = any ($1::text[])"
    sql = f"select {columns_of(Provenance)} from queues.provenance answer where {where}"  # noqa: S608 - our names only
    return Statement(sql, (list(worker_ids),), many(Provenance))
