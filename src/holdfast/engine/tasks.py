"""Tasks after they were enqueued: their status, their history, and what operators do to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeVar, get_args
from uuid import UUID

from holdfast.engine.documents import Json
from holdfast.engine.statement import (
    Argument,
    Bound,
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

Status = Literal[
    "scheduled",
    "pending",
    "retrying",
    "claimed",
    "running",
    "succeeded",
    "failed",
    "dead_letter",
    "cancelled",
]
STATUSES: tuple[Status, ...] = get_args(Status)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks: those that match all that is given."""

    status: str | None = None
    queue: str | None = None
    type_prefix: str | None = None
    since: datetime | None = None
    spec_hash: str | None = None


@dataclass(frozen=True, slots=True)
class TaskId:
    """A task of a listing, without its documents."""

    task_id: UUID
    deleted_at: datetime | None


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Where a task stands."""

    task_id: UUID
    type: str
    queue: str
    executor: str
    status: Status
    priority: int
    payload: Json
    result: Json
    error: Json
    last_error: str | None
    idempotency_key: str | None
    spec_hash: str
    attempt: int
    max_attempts: int
    run_at: datetime
    worker_id: str | None
    lease_until: datetime | None
    created_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    deleted_at: datetime | None
    delete_reason: str | None
    reason: str | None
    progress: Json
    timeout: timedelta | None
    lease: timedelta | None
    metadata: Json
    enqueued_by: str
    namespace: str
    concurrency_key: str | None


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a task ended, if it did; the result as it was written."""

    task_id: UUID
    type: str
    status: Status
    result_json: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class TaskLook:
    """What somebody who waits for a task wants to know; documents as they were written."""

    task_id: UUID
    type: str
    status: Status
    attempt: int
    max_attempts: int
    run_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    progress_json: str | None
    result_json: str | None

    @property
    def ended(self) -> bool:
        return self.finished_at is not None

    @property
    def life(self) -> tuple[object, ...]:
        """Changes whenever there is news, but for progress."""
        return self.status, self.attempt, self.updated_at, self.started_at


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """One thing that happened to a task."""

    task_id: UUID
    event_type: str
    occurred_at: datetime
    attempt: int | None
    worker_id: str | None
    actor: str | None
    reason: str | None
    data: Json


@dataclass(frozen=True, slots=True)
class TaskError:
    """An attempt that went wrong."""

    error_id: int
    task_id: UUID
    attempt: int
    kind: str
    message: str
    detail: Json
    worker_id: str | None
    recovered: bool
    claimed_at: datetime | None
    started_at: datetime | None
    occurred_at: datetime
    retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class Watched:
    """Where a task stands whose end somebody waits for."""

    task_id: UUID
    status: Status


EVERY_TASK = TaskFilter()


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


def watch_many(task_ids: Sequence[UUID], ttl: timedelta | None = None) -> Statement[list[Watched]]:
    """Those that may be seen, with their status now."""
    arguments = {"task_ids": Bound("uuid[]", list(task_ids)), "ttl": span(ttl)}
    return call("queues.watch_many", many(Watched), arguments, columns_of(Watched))


def search_tasks(words: str, max_tasks: int | None = None) -> Statement[list[TaskStatus]]:
    arguments = {"words": text(words), "max_tasks": integer(max_tasks)}
    return call("queues.search_tasks", many(TaskStatus), arguments, columns_of(TaskStatus))
