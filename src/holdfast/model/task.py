"""Tasks: what is enqueued, and where it stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, get_args
from uuid import UUID

from holdfast.model.document import Json, RawJson

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


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks: those that match all that is given."""

    status: str | None = None
    queue: str | None = None
    type_prefix: str | None = None
    since: datetime | None = None
    spec_hash: str | None = None


EVERY_TASK = TaskFilter()


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
