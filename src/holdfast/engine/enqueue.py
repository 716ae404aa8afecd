"""Statements that ask for work."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any
from uuid import UUID

from holdfast.engine.statement import (
    Bound,
    Statement,
    call,
    columns_of,
    document,
    dump_json,
    instant,
    integer,
    many,
    scalar,
    span,
    storable,
    text,
    written_instant,
    written_seconds,
)
from holdfast.model import Enqueued, NewTask, RawJson


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
    objects = (_written(task, f"tasks[{n}].") for n, task in enumerate(tasks))
    return call(
        "queues.enqueue_many",
        many(Enqueued),
        {"tasks": Bound("text::jsonb", RawJson(f"[{','.join(objects)}]"))},
        columns_of(Enqueued),
    )


_MEMBERS = tuple(field.name for field in fields(NewTask))


def _written(task: NewTask, place: str) -> str:
    """Joined by hand, so that raw JSON goes in unread."""
    members = ((name, getattr(task, name)) for name in _MEMBERS)
    written = (
        f'"{name}":{_member(place + name, name, value)}'
        for name, value in members
        if value is not None or name == "payload"
    )
    return f"{{{','.join(written)}}}"


def _member(place: str, name: str, value: Any) -> str:
    if name == "run_at":
        value = written_instant(place, value)
    elif name in {"timeout", "lease"}:
        value = written_seconds(value)
    elif name not in {"payload", "metadata"} and isinstance(value, str):
        value = storable(place, value)
    return dump_json(place, value)
