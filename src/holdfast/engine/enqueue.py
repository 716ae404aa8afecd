"""Statements that ask for work."""

from collections.abc import Iterable
from uuid import UUID

from holdfast.engine.documents import (
    array_of,
    dump_json,
    object_of,
    storable_text,
    written_instant,
    written_seconds,
)
from holdfast.engine.statement import (
    Statement,
    call,
    columns_of,
    document,
    instant,
    integer,
    many,
    scalar,
    span,
    text,
)
from holdfast.model import Enqueued, NewTask


def enqueue(task: NewTask) -> Statement[UUID]:
    arguments = {
        "type": text(task.type),
        "payload": document(task.payload),
        "queue": text(task.queue),
        "priority": integer(task.priority),
        "run_at": instant(task.run_at),
        "idempotency_key": text(task.idempotency_key),
        "max_attempts": integer(task.max_attempts),
        "timeout": span(task.timeout),
        "lease": span(task.lease),
        "executor": text(task.executor),
        "metadata": None if task.metadata is None else document(task.metadata),
    }
    return call("queues.enqueue", scalar, arguments)


def enqueue_many(tasks: Iterable[NewTask]) -> Statement[list[Enqueued]]:
    """All or nothing, answered in order."""
    batch = array_of(_written(task, f"tasks[{n}].") for n, task in enumerate(tasks))
    return call("queues.enqueue_many", many(Enqueued), {"tasks": document(batch)}, columns_of(Enqueued))


def _written(task: NewTask, place: str) -> str:
    return object_of(
        type=_text(f"{place}type", task.type),
        payload=dump_json(f"{place}payload", task.payload),
        queue=_text(f"{place}queue", task.queue),
        priority=_number(task.priority),
        run_at=written_instant(f"{place}run_at", task.run_at),
        idempotency_key=_text(f"{place}idempotency_key", task.idempotency_key),
        max_attempts=_number(task.max_attempts),
        timeout=written_seconds(task.timeout),
        lease=written_seconds(task.lease),
        executor=_text(f"{place}executor", task.executor),
        metadata=None if task.metadata is None else dump_json(f"{place}metadata", task.metadata),
    )


def _text(field: str, value: str | None) -> str | None:
    return None if value is None else dump_json(field, storable_text(field, value))


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)
