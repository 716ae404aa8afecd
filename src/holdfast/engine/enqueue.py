"""Enqueue tasks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, get_args
from uuid import UUID

from holdfast.engine.documents import (
    RawJson,
    array_of,
    dump_json,
    object_of,
    written_instant,
    written_seconds,
)
from holdfast.engine.statement import (
    Argument,
    Bound,
    Statement,
    call,
    columns_of,
    document,
    due,
    integer,
    many,
    only,
    scalar,
    span,
    text,
)
from holdfast.errors import InvalidArgument
from holdfast.serialization.text import require_storable

Executor = Literal["python", "process", "command", "db_function", "email", "sms"]
EXECUTORS: tuple[Executor, ...] = get_args(Executor)
# succeeded: a run of the same spec that has succeeded · active: that, or one that is under way
Reuse = Literal["succeeded", "active"]
REUSES: tuple[Reuse, ...] = get_args(Reuse)


@dataclass(slots=True)
class NewTask:
    """What to enqueue. None leaves the choice to the engine, by whose clock a delay is counted.

    Not frozen, which would double the time that it takes to make one.
    """

    type: str
    payload: Any = field(default_factory=dict)
    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    idempotency_key: str | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    lease: timedelta | None = None
    executor: str | None = None
    metadata: Mapping[str, Any] | RawJson | None = None
    delay: timedelta | None = None
    concurrency_key: str | None = None
    reuse: Reuse | None = None


@dataclass(slots=True)
class Enqueued:
    """Not frozen, for the same reason."""

    task_id: UUID
    created: bool


_ENQUEUE_MANY = call("queues.enqueue_many", many(Enqueued), {"tasks": document([])}, columns_of(Enqueued)).sql


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
        "concurrency_key": text(task.concurrency_key),
    }
    return call("queues.enqueue", scalar, arguments)


def enqueue_many(tasks: Iterable[NewTask]) -> Statement[list[Enqueued]]:
    """All or nothing, answered in order."""
    asked = list(tasks)
    written: list[str] = []
    heads: dict[tuple[object, ...], str] = {}
    try:
        for task in asked:
            written.append(_written(task, heads))  # noqa: PERF401 - its length tells which one was refused
    except InvalidArgument as error:
        raise type(error)(f"tasks[{len(written)}].{error.message}", hint=error.hint) from None
    batch = array_of(written)
    if any(task.delay is not None for task in asked):
        return _enqueue_many_delayed(batch)
    return Statement(_ENQUEUE_MANY, (batch,), many(Enqueued))


def enqueue_written(tasks: str, token_hash: bytes | None = None) -> Statement[list[Enqueued]]:
    """A batch that is JSON already, sent as it is: no digit of it is lost on the way.

    In the namespace of the access token, or in that of the connection's login.
    """
    written: dict[str, Argument] = {"tasks": document(RawJson(tasks))}
    if token_hash is None:
        return call("queues.enqueue_many", many(Enqueued), written, columns_of(Enqueued))
    shown: dict[str, Argument] = {"token_hash": Bound("bytea", token_hash)}
    return call("queues.enqueue_for_token", many(Enqueued), shown | written, columns_of(Enqueued))


def enqueue_reusing(task: NewTask) -> Statement[Enqueued]:
    """The task, or a run of the same spec that may stand for it."""
    arguments = {
        "type": text(task.type),
        "payload": document(task.payload),
        "queue": text(task.queue),
        "priority": integer(task.priority),
        "run_at": due(task.run_at, task.delay),
        "max_attempts": integer(task.max_attempts),
        "timeout": span(task.timeout),
        "lease": span(task.lease),
        "executor": text(task.executor),
        "metadata": None if task.metadata is None else document(task.metadata),
        "concurrency_key": text(task.concurrency_key),
        "reuse": text(task.reuse),
    }
    return call("queues.enqueue_reusing", only(Enqueued), arguments, columns_of(Enqueued))


def enqueue_one(task: NewTask) -> Statement[Enqueued]:
    """The shortest way that also says whether the task is new: without a key it always is."""
    if task.reuse is not None and task.idempotency_key is None:
        return enqueue_reusing(task)
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


def written_task(task: NewTask) -> str:
    """One element of a batch, alone."""
    return _written(task, {})


def _written(task: NewTask, heads: dict[tuple[object, ...], str]) -> str:
    """An element of a batch. What the tasks of a batch have in common is written once."""
    common = (
        task.type,
        task.queue,
        task.priority,
        task.max_attempts,
        task.timeout,
        task.lease,
        task.executor,
        task.concurrency_key,
    )
    head = heads.get(common)
    if head is None:
        head = heads[common] = _head(task)
    payload = dump_json("payload", task.payload)
    if task.run_at is None and task.idempotency_key is None and task.metadata is None and task.delay is None:
        return f'{head}"payload":{payload}}}'
    own = object_of(
        payload=payload,
        run_at=written_instant("run_at", task.run_at),
        idempotency_key=_text("idempotency_key", task.idempotency_key),
        metadata=None if task.metadata is None else dump_json("metadata", task.metadata),
        delay=written_seconds(task.delay),
    )
    return head + own[1:]


def _head(task: NewTask) -> str:
    """The beginning of the object, up to where the next member begins."""
    written = object_of(
        type=_text("type", task.type),
        queue=_text("queue", task.queue),
        priority=_number(task.priority),
        max_attempts=_number(task.max_attempts),
        timeout=written_seconds(task.timeout),
        lease=written_seconds(task.lease),
        executor=_text("executor", task.executor),
        concurrency_key=_text("concurrency_key", task.concurrency_key),
    )
    return f"{written[:-1]},"


def _text(name: str, value: str | None) -> str | None:
    return None if value is None else dump_json(name, require_storable(name, value))


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)
