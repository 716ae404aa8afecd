"""Statements about queues, the workers that serve them, and the clock that all share."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.engine.statement import (
    Statement,
    boolean,
    call,
    columns_of,
    document,
    integer,
    many,
    nothing,
    only,
    scalar,
    span,
    text,
    texts,
)
from holdfast.model import (
    ActivityCount,
    HealthLine,
    LostWorker,
    Provenance,
    QueueStatus,
    UnservedQueue,
    WorkerStatus,
)


def clock() -> Statement[datetime]:
    return call("queues.clock", scalar, {})


def pause(queue: str, reason: str | None = None) -> Statement[bool]:
    """Answers whether the queue was running until now."""
    return call("queues.pause", scalar, {"queue": text(queue), "reason": text(reason)})


def resume(queue: str, reason: str | None = None) -> Statement[bool]:
    """Answers whether the queue was paused until now."""
    return call("queues.resume", scalar, {"queue": text(queue), "reason": text(reason)})


def queue_status() -> Statement[list[QueueStatus]]:
    sql = f"select {columns_of(QueueStatus)} from queues.queue_status answer order by answer.queue"  # noqa: S608 - our names only
    return Statement(sql, (), many(QueueStatus))


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


def unserved_queues() -> Statement[list[UnservedQueue]]:
    """The one that has waited longest comes first."""
    return call("queues.unserved_queues", many(UnservedQueue), {}, columns_of(UnservedQueue))


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
    """Answers whether it is registered."""
    return call("queues.mark_idle", scalar, {"worker_id": text(worker_id), "idle": boolean(idle)})


def keep_door(worker_id: str, queues: Sequence[str]) -> Statement[list[str]]:
    """Return those whose doors this worker keeps for half a second: who enqueues there wakes nobody."""
    return call("queues.keep_door", scalar, {"worker_id": text(worker_id), "queues": texts(queues)})


def leave_door(worker_id: str, queues: Sequence[str]) -> Statement[None]:
    return call("queues.leave_door", nothing, {"worker_id": text(worker_id), "queues": texts(queues)})


def ring(queues: Sequence[str]) -> Statement[bool]:
    """Wake idle workers for what has just come. Answers whether something has."""
    return call("queues.ring", scalar, {"queues": texts(queues)})


def lead(worker_id: str, term: timedelta | None = None) -> Statement[bool]:
    """Answers whether the worker leads now."""
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


def health() -> Statement[list[HealthLine]]:
    """The worst first."""
    return call("queues.health", many(HealthLine), {}, columns_of(HealthLine))


def measure() -> Statement[bool]:
    """Answers whether it was done: not if somebody has just done it."""
    return call("queues.measure", scalar, {})


def record_environment(worker_id: str, environment: Mapping[str, Any]) -> Statement[None]:
    arguments = {"worker_id": text(worker_id), "environment": document(environment)}
    return call("queues.record_environment", nothing, arguments)


def provenance(worker_ids: Sequence[str]) -> Statement[list[Provenance]]:
    """What these workers ran with."""
    where = "answer.worker_id = any ($1::text[])"
    sql = f"select {columns_of(Provenance)} from queues.provenance answer where {where}"  # noqa: S608 - our names only
    return Statement(sql, (list(worker_ids),), many(Provenance))


def count_activity() -> Statement[ActivityCount]:
    """Asked twice, it tells rates."""
    return call("queues.count_activity", only(ActivityCount), {}, columns_of(ActivityCount))
