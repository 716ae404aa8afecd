"""What goes into the engine and what comes back: values, with the names of the SQL contract.

Fields stand in the order in which they are selected. `Json` is decoded on arrival; a field that ends in
`_json` is kept as text, so that a document that cannot be decoded is the problem of its own task only.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

Json = Annotated[Any, "a document, decoded"]

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

# held, deleted: a heartbeat · accepted: a finish · released: a release · already_done: a repeated call
VerdictWord = Literal["held", "deleted", "accepted", "released", "already_done", "cancelled", "lost"]
ResultStatus = Literal["succeeded", "failed", "retry", "snooze", "cancelled"]

CatchUp = Literal["skip", "latest", "all"]
CATCH_UPS: tuple[CatchUp, ...] = get_args(CatchUp)
Overlap = Literal["allow", "skip"]
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
Level = Literal["green", "amber", "red"]
LEVELS: tuple[Level, ...] = get_args(Level)
ScheduleState = Literal["active", "paused", "orphaned", "broken"]


# succeeded: a run of the same spec that has succeeded · active: that, or one that is under way
Reuse = Literal["succeeded", "active"]
REUSES: tuple[Reuse, ...] = get_args(Reuse)


class RawJson(str):
    """JSON that is text already: sent as it is, with every digit."""

    __slots__ = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """What to enqueue by the clock, and when: by a cron expression in a zone, or every so often."""

    name: str
    task: NewTask
    cron: str | None = None
    every: timedelta | None = None
    anchor: datetime | None = None
    tz: str | None = None
    catch_up: CatchUp = "latest"
    catch_up_limit: int = 10
    jitter: timedelta | None = None
    overlap: Overlap = "allow"


@dataclass(frozen=True, slots=True)
class Claimed:
    """A task that this worker holds until lease_until."""

    task_id: UUID
    token: int
    type: str
    executor: str
    payload_json: str
    attempt: int
    max_attempts: int
    lease_until: datetime
    timeout: timedelta | None
    metadata_json: str | None
    run_at: datetime
    lane_id: int

    @property
    def payload(self) -> Any:
        return json.loads(self.payload_json)

    @property
    def metadata(self) -> Any:
        return None if self.metadata_json is None else json.loads(self.metadata_json)


@dataclass(frozen=True, slots=True)
class Held:
    """What a worker says it holds, for a heartbeat or a release."""

    task_id: UUID
    token: int
    started_at: datetime | None = None
    progress: Any = None


@dataclass(frozen=True, slots=True)
class Result:
    """How an attempt went, for a finish. `run_at` says when a retry or a snooze is due."""

    task_id: UUID
    token: int
    status: ResultStatus
    result: Any = None
    error: Any = None
    run_at: datetime | None = None
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one element of a heartbeat, finish or release."""

    task_id: UUID
    verdict: VerdictWord


@dataclass(frozen=True, slots=True)
class Swept:
    recovered: int
    dead: int


@dataclass(frozen=True, slots=True)
class LastError:
    """How the attempt before this one ended, and how long ago it was claimed."""

    kind: str
    recovered: bool
    detail: Json
    age: timedelta


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
class QueueStatus:
    """What waits and what runs in a queue."""

    queue: str
    due: int
    scheduled: int
    running: int
    oldest_due: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    live_workers: int


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A limit of a queue or a type, and how far it is used."""

    subject: str
    name: str
    max_running: int | None
    per_key: int | None
    rate: int | None
    per: timedelta | None
    running: int
    may_start: int | None
    set_at: datetime
    set_by: str
    reason: str | None


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


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that was silent for too long. One that is not removed yet held more than was asked for."""

    worker_id: str
    last_heartbeat: datetime
    recovered: int
    dead: int
    removed: bool


@dataclass(frozen=True, slots=True)
class Declared:
    """What became of a schedule that an application's code has, or has no longer."""

    name: str
    verdict: Literal["added", "changed", "unchanged", "taken", "orphaned"]


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule that somebody has to decide on: when next, or what is due since `next_at`."""

    name: str
    version: int
    cron: str | None
    every: timedelta | None
    anchor: datetime | None
    tz: str | None
    plan_from: datetime | None
    next_at: datetime | None
    max_times: int
    now: datetime


@dataclass(frozen=True, slots=True)
class Firing:
    """What was decided on one nominal time of a schedule."""

    nominal_at: datetime
    decision: Literal["fired", "overlapped", "missed"]
    task_id: UUID | None


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A schedule, and when it fires next; `never` if it does not."""

    name: str
    state: ScheduleState
    type: str
    cron: str | None
    every: timedelta | None
    anchor: datetime | None
    tz: str | None
    catch_up: CatchUp
    catch_up_limit: int
    jitter: timedelta
    overlap: Overlap
    next_at: datetime | None
    never: bool
    last_nominal_at: datetime | None
    last_task_id: UUID | None
    declared_by: str | None
    created_by: str
    created_at: datetime
    changed_at: datetime
    orphaned_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    problem: str | None
    task: Json


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """What became of a time of a schedule, or what somebody did to it."""

    schedule: str
    event_type: str
    occurred_at: datetime
    nominal_at: datetime | None
    task_id: UUID | None
    actor: str | None
    reason: str | None


Prunable = Literal["succeeded", "failed", "dead_letter", "cancelled", "deleted", "history"]
"""What retention has policies for: how a task ended, or that it was deleted; and what else is remembered."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long tasks are kept that ended so, or were deleted, and whose types begin so. None is for ever."""

    status: Prunable
    type_prefix: str
    keep: timedelta | None
    changed_at: datetime | None
    changed_by: str | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many were removed of how many that were looked at, and past which task to go on."""

    pruned: int
    examined: int
    next: UUID | None


Scope = Literal["enqueue", "read", "operate", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True, slots=True)
class Access:
    """Who uses the HTTP side by an access token or a session, and what that one may do."""

    token_id: int
    name: str
    scopes: list[str]
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class AccessTokenStatus:
    """An access token, without what would let anybody use it."""

    token_id: int
    name: str
    scopes: list[str]
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    good: bool
    sessions: int


@dataclass(frozen=True, slots=True)
class AccessEvent:
    """What was done with a token, a login or hidden values."""

    access_act_id: int
    act: str
    occurred_at: datetime
    actor: str
    token_id: int | None
    task_id: UUID | None
    address: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Watched:
    """Where a task stands whose end somebody waits for."""

    task_id: UUID
    status: Status


@dataclass(frozen=True, slots=True)
class Activity:
    """What the samples of one step say."""

    at: datetime
    due: float
    scheduled: float
    running: float
    enqueued_per_second: float | None
    finished_per_second: float | None
    errors_per_second: float | None
    delay_p50: float | None
    delay_p99: float | None


@dataclass(frozen=True, slots=True)
class Subscription:
    """Who asks for which events, as a dispatcher is told: with its secrets."""

    subscription_id: int
    name: str
    sink: str
    target: str
    options: Json
    secrets: list[str] = field(repr=False)
    allow_internal: bool
    outstanding: bool


@dataclass(frozen=True, slots=True)
class ClaimedEvent:
    """An event that a dispatcher holds until its lease ends."""

    event_id: UUID
    token: int
    attempt: int
    aggregate_id: str
    event_type: str
    source: str
    subject: str | None
    occurred_at: datetime
    traceparent: str | None
    data_json: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of a claimed event."""

    subscription_id: int
    event_id: UUID
    token: int
    status: Literal["delivered", "failed", "rejected", "released"]
    error: str | None = None
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """How a subscription does."""

    name: str
    event_types: list[str]
    type_prefixes: list[str]
    sink: str
    target: str
    options: Json
    secrets: int
    allow_internal: bool
    max_attempts: int
    created_at: datetime
    created_by: str
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    pending: int
    in_flight: int
    oldest: datetime | None
    dead: int
    breaker: str
    failures: int
    open_until: datetime | None
    last_failure_at: datetime | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """An event on its way to one subscription."""

    event_id: UUID
    event_type: str
    occurred_at: datetime
    subscription: str | None
    status: str
    attempt: int
    due_at: datetime | None
    settled_at: datetime | None
    dispatcher_id: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class TailedEvent:
    """An event of the outbox, with its place in the order in which events became known."""

    event_id: UUID
    event_type: str
    occurred_at: datetime
    aggregate_id: str | None
    subject: str | None
    task_id: UUID | None
    data: Json
    delivered: int
    dead: int
    deliveries: int
    transaction_id: int
    event_number: int
    final: bool


@dataclass(frozen=True, slots=True)
class HealthLine:
    """One thing that was looked at: about what, as a number and in words, and what to do about it."""

    check_name: str
    level: Level
    subject: str | None
    value: float | None
    message: str
    advice: str | None


@dataclass(frozen=True, slots=True)
class Provenance:
    """What one start of a worker ran with."""

    worker_id: str
    recorded_at: datetime
    environment: Json


@dataclass(frozen=True, slots=True)
class TableChange:
    """What the current transaction has done to a table, in rows."""

    table_name: str
    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class ActivityCount:
    """What was enqueued, ended and went wrong since the server's statistics began."""

    counted_at: datetime
    enqueued: int
    finished: int
    errors: int
