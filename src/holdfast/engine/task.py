"""Statements about one task, or a page of them: what people and clients ask for."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from holdfast.engine.statement import (
    Argument,
    Decode,
    Statement,
    call,
    columns_of,
    due,
    first,
    instant,
    integer,
    many,
    scalar,
    span,
    text,
    uuid,
)
from holdfast.model import (
    EVERY_TASK,
    Status,
    TableChange,
    TaskEnd,
    TaskError,
    TaskEvent,
    TaskFilter,
    TaskId,
    TaskLook,
    TaskStatus,
)

T = TypeVar("T")


def cancel(task_id: UUID, reason: str | None = None) -> Statement[Status]:
    """Answers the status it led to: cancelled, or how the task had already ended."""
    return call("queues.cancel", scalar, {"task_id": uuid(task_id), "reason": text(reason)})


def retry(task_id: UUID, reason: str | None = None) -> Statement[Status]:
    return call("queues.retry", scalar, {"task_id": uuid(task_id), "reason": text(reason)})


def delete_task(task_id: UUID, reason: str | None = None) -> Statement[str]:
    return call("queues.delete_task", scalar, {"task_id": uuid(task_id), "reason": text(reason)})


def restore_task(task_id: UUID, reason: str | None = None) -> Statement[Status]:
    return call("queues.restore_task", scalar, {"task_id": uuid(task_id), "reason": text(reason)})


def reschedule(
    task_id: UUID,
    run_at: datetime | None = None,
    reason: str | None = None,
    *,
    delay: timedelta | None = None,
) -> Statement[Status]:
    """To a time, or to so long from now."""
    arguments = {"task_id": uuid(task_id), "run_at": due(run_at, delay), "reason": text(reason)}
    return call("queues.reschedule", scalar, arguments)


def watch(task_id: UUID, ttl: timedelta | None = None) -> Statement[Status]:
    """Ask for a notification when the task ends; answers its status now."""
    return call("queues.watch", scalar, {"task_id": uuid(task_id), "ttl": span(ttl)})


def explain(task_id: UUID) -> Statement[str]:
    return call("queues.explain", scalar, {"task_id": uuid(task_id)})


def replay(task_id: UUID, reason: str | None = None) -> Statement[UUID]:
    """The same spec again, as a new task."""
    return call("queues.replay", scalar, {"task_id": uuid(task_id), "reason": text(reason)})


def changed_tables() -> Statement[list[TableChange]]:
    """What the current transaction has written, as far as PostgreSQL counts it."""
    counted = """select schemaname || '.' || relname as table_name, n_tup_ins as inserted,
      n_tup_upd as updated, n_tup_del as deleted from pg_catalog.pg_stat_xact_user_tables"""
    sql = f"""select {columns_of(TableChange)} from ({counted}) answer
      where answer.inserted + answer.updated + answer.deleted > 0 order by 1"""  # noqa: S608 - our names only
    return Statement(sql, (), many(TableChange))


def list_tasks(
    matching: TaskFilter = EVERY_TASK, before: UUID | None = None, max_tasks: int | None = None
) -> Statement[list[TaskStatus]]:
    """One page, newest first; `before` is the last task_id of the page before."""
    arguments = _filters(matching, before, max_tasks)
    return call("queues.list_tasks", many(TaskStatus), arguments, columns_of(TaskStatus))


def list_task_ids(
    matching: TaskFilter = EVERY_TASK, before: UUID | None = None, max_tasks: int | None = None
) -> Statement[list[TaskId]]:
    """The same page without its documents, for acts on many tasks."""
    arguments = _filters(matching, before, max_tasks)
    return call("queues.list_tasks", many(TaskId), arguments, columns_of(TaskId))


def task_status(task_id: UUID) -> Statement[TaskStatus | None]:
    return _of_task("queues.task_status", columns_of(TaskStatus), first(TaskStatus), task_id)


def task_end(task_id: UUID) -> Statement[TaskEnd | None]:
    """The status with the result, and without what else was asked for."""
    return _of_task("queues.task_status", columns_of(TaskEnd), first(TaskEnd), task_id)


def task_events(task_id: UUID) -> Statement[list[TaskEvent]]:
    """In the order in which they happened, which is the view's own."""
    return _of_task("queues.task_event", columns_of(TaskEvent), many(TaskEvent), task_id)


def task_errors(task_id: UUID) -> Statement[list[TaskError]]:
    return _of_task("queues.task_error", columns_of(TaskError), many(TaskError), task_id, "answer.error_id")


def task_looks(task_ids: Sequence[UUID]) -> Statement[list[TaskLook]]:
    """Of many tasks, for those who wait for them."""
    return _of_tasks("queues.task_status", columns_of(TaskLook), many(TaskLook), task_ids)


def events_of(task_ids: Sequence[UUID]) -> Statement[list[TaskEvent]]:
    """Of many tasks; those of one are in the order in which they happened."""
    return _of_tasks("queues.task_event", columns_of(TaskEvent), many(TaskEvent), task_ids)


def _of_task(view: str, columns: str, decode: Decode[T], task_id: UUID, order: str = "") -> Statement[T]:
    ordered = f" order by {order}" if order else ""
    sql = f"select {columns} from {view} answer where answer.task_id = $1::uuid{ordered}"  # noqa: S608 - our names only
    return Statement(sql, (task_id,), decode)


def _of_tasks(view: str, columns: str, decode: Decode[T], task_ids: Sequence[UUID]) -> Statement[T]:
    sql = f"select {columns} from {view} answer where answer.task_id = any ($1::uuid[])"  # noqa: S608 - our names only
    return Statement(sql, (list(task_ids),), decode)


def _filters(matching: TaskFilter, before: UUID | None, max_tasks: int | None) -> dict[str, Argument]:
    return {
        "status": text(matching.status),
        "queue": text(matching.queue),
        "type_prefix": text(matching.type_prefix),
        "since": instant(matching.since),
        "before": uuid(before),
        "max_tasks": integer(max_tasks),
        "spec_hash": text(matching.spec_hash),
    }
