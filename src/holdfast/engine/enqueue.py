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
    due,
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
        "run_at": due(task.run_at, task.delay),
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
    asked = list(tasks)
    batch = array_of(_written(task, f"tasks[{n}].") for n, task in enumerate(asked))
    if any(task.delay is not None for task in asked):
        return _enqueue_many_delayed(batch)
    return call("queues.enqueue_many", many(Enqueued), {"tasks": document(batch)}, columns_of(Enqueued))


def ask(task: NewTask) -> Statement[Enqueued]:
    """The shortest way that also says whether the task is new: without a key it always is."""
    if task.idempotency_key is not None:
        batch = enqueue_many([task])
        return Statement(batch.sql, batch.params, lambda rows: batch.decode(rows)[0])
    alone = enqueue(task)
    return Statement(alone.sql, alone.params, lambda rows: Enqueued(alone.decode(rows), created=True))


def _enqueue_many_delayed(batch: str) -> Statement[list[Enqueued]]:
    """A batch whose delays become times by the engine's own clock."""
    sql = f"""select {columns_of(Enqueued)} from queues.enqueue_many(tasks => (
      select jsonb_agg(case when e -> 'delay' is not null
          then e - 'delay' || jsonb_build_object('run_at', queues.clock() + (e ->> 'delay')::interval)
          else e end order by n)
      from jsonb_array_elements($1::text::jsonb) with ordinality listed(e, n))) answer"""  # noqa: S608 - our names only
    return Statement(sql, (str(batch),), many(Enqueued))


def _written(task: NewTask, place: str) -> str:
    return object_of(
        type=_text(place, "type", task.type),
        payload=dump_json(f"{place}payload", task.payload),
        queue=_text(place, "queue", task.queue),
        priority=_number(task.priority),
        run_at=None if task.run_at is None else written_instant(f"{place}run_at", task.run_at),
        idempotency_key=_text(place, "idempotency_key", task.idempotency_key),
        max_attempts=_number(task.max_attempts),
        timeout=written_seconds(task.timeout),
        lease=written_seconds(task.lease),
        executor=_text(place, "executor", task.executor),
        metadata=None if task.metadata is None else dump_json(f"{place}metadata", task.metadata),
        delay=written_seconds(task.delay),
    )


def _text(place: str, name: str, value: str | None) -> str | None:
    if value is None:
        return None
    field = f"{place}{name}"
    return dump_json(field, storable_text(field, value))


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)
