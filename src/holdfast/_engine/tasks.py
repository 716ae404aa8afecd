"""Tasks that were enqueued: their status and history, and the actions on them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeVar, get_args
from uuid import UUID

from holdfast._engine.statement import (
    Argument,
    AsyncEngine,
    Bound,
    Engine,
    Row,
    Rows,
    Statement,
    boolean,
    call,
    due,
    first,
    integer,
    interval,
    many,
    only,
    scalar,
    select,
    sql_function,
    text,
    timestamptz,
    uuid,
)
from holdfast._serialization.text import Json, load_json
from holdfast._words.explanation import explanation_words

Status = Literal[
    "scheduled",
    "suspended",
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
ENDED: frozenset[Status] = frozenset(("succeeded", "failed", "dead_letter", "cancelled"))
MIN_DIGITS = 8
"""Of the end of an id that names a task."""
MAX_ERRORS = 1000
MAX_EVENTS = 1000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Tasks that match every field that is set."""

    status: str | None = None
    queue: str | None = None
    type_prefix: str | None = None
    since: datetime | None = None
    spec_hash: str | None = None
    words: str | None = None
    """In the id, type, keys or error messages."""
    error_group: str | None = None
    """Of the last error: see `error_groups`."""
    payload_path: str | None = None
    """A JSON path that finds something in the payload."""
    search_errors: bool = True
    """Whether words are also looked for in error messages."""


@dataclass(frozen=True, slots=True)
class TaskId:
    """A task in a listing, without its documents."""

    task_id: UUID
    deleted_at: datetime | None


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task and its current state."""

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
    deadline: timedelta | None
    cancelled_by: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why a task is not running now, in words as well.

    `error` is what an error or a handler says about it, `advice` a command that ends the wait.
    """

    code: str
    facts: Json
    message: str
    advice: str | None
    error: str | None

    def __str__(self) -> str:
        error = None if self.error is None else f"Latest error: {self.error}"
        return "\n".join(line for line in (self.message, error, self.advice) if line is not None)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task is not running now, in the order in which it is read."""

    reasons: list[Reason]

    @property
    def why(self) -> str:
        return " ".join(reason.message for reason in self.reasons)

    def __str__(self) -> str:
        return "\n".join(map(str, self.reasons))


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A task in a list, without its documents."""

    task_id: UUID
    type: str
    queue: str
    status: Status
    attempt: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker_id: str | None
    idempotency_key: str | None
    deleted_at: datetime | None


@dataclass(frozen=True, slots=True)
class FailedTry:
    """A failed try of a step."""

    task_id: UUID
    step: str
    step_try: int
    step_tries: int | None
    kind: str
    message: str
    arguments: Json = None
    """What the step was called with."""

    def __str__(self) -> str:
        return f"failed try {self.step_try}{'' if self.step_tries is None else f' of {self.step_tries}'}"


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed tasks of one type with the same kind of error and the same exception."""

    tasks: int
    type: str
    queue: str
    status: Status
    kind: str | None
    exception: str | None
    newest: UUID
    newest_at: datetime


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """What a caller that waits for a task needs to know. Documents are JSON text, as they were written."""

    task_id: UUID
    type: str
    status: Status
    attempt: int
    max_attempts: int
    run_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    reason: str | None
    progress_json: str | None
    result_json: str | None

    @property
    def ended(self) -> bool:
        return self.finished_at is not None

    @property
    def revision(self) -> tuple[object, ...]:
        """Differs whenever anything but the progress has changed."""
        return self.status, self.attempt, self.updated_at, self.started_at


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """An entry in the history of a task."""

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
    """A failed attempt of a task, or a failed try of one of its steps."""

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
    step: str | None
    """None if the attempt failed. Otherwise the attempt goes on, and the step is tried again at retry_at."""
    step_try: int | None
    step_tries: int | None


@dataclass(frozen=True, slots=True)
class FoundTasks:
    """One page of a list: it may be empty although there are more tasks before `next`."""

    task_ids: list[UUID]
    next: UUID | None


EVERY_TASK = TaskFilter()


@sql_function("queues.cancel")
def cancel(task_id: UUID, reason: str | None = None) -> Statement[Status]:
    """Returns the resulting status: cancelled, or the status with which the task had already ended."""


def cancel_many(task_ids: Sequence[UUID], reason: str | None = None) -> Statement[int]:
    """Cancel tasks that have not ended. Returns how many tasks are cancelled now that were not before."""
    sql = (
        "select count(*) from (select queues.cancel(answer.task_id, $2) as status"
        " from queues.task_status answer where answer.task_id = any($1::uuid[])"
        " and answer.status <> all($3::text[]) order by answer.task_id) done where done.status = 'cancelled'"
    )
    return Statement(sql, (list(task_ids), reason, sorted(ENDED)), scalar)


def count_by_status(task_ids: Sequence[UUID]) -> Statement[dict[str, int]]:
    """How many of these tasks have each status. Those that were deleted before they ended are `deleted`."""
    status = "case when answer.deleted_at is null or answer.status = any($2::text[]) then answer.status"
    rest = "where answer.task_id = any($1::uuid[]) group by 1"
    counted = Rows(f"{status} else 'deleted' end, count(*)", _counts)
    return select(counted, "queues.task_status", rest, (list(task_ids), sorted(ENDED)))


def batch_members(task_id: UUID) -> Statement[list[UUID]]:
    """The tasks that a task comes after, in order."""
    members = Rows("answer.*", lambda rows: [one for (one,) in rows])
    return call("queues.batch_members", members, {"task_id": uuid(task_id)})


@sql_function("queues.retry")
def retry(task_id: UUID, reason: str | None = None) -> Statement[Status]:
    """Give a task that failed, died or was cancelled new attempts. Returns the resulting status."""


@sql_function("queues.delete_task")
def delete_task(task_id: UUID, reason: str | None = None) -> Statement[str]:
    """Soft-delete a task in any status. Returns `deleted`."""


@sql_function("queues.restore_task")
def restore_task(task_id: UUID, reason: str | None = None) -> Statement[Status]:
    """Undo a soft delete. Returns the status that the task has again."""


def reschedule(
    task_id: UUID,
    run_at: datetime | None = None,
    reason: str | None = None,
    *,
    delay: timedelta | None = None,
) -> Statement[Status]:
    """Run a task at another time, or after a delay from now. Returns the resulting status."""
    arguments = {"task_id": uuid(task_id), "run_at": due(run_at, delay), "reason": text(reason)}
    return call("queues.reschedule", scalar, arguments)


@sql_function("queues.watch")
def watch(task_id: UUID, ttl: timedelta | None = None) -> Statement[Status]:
    """Request a notification when the task ends. Returns its current status."""


def watch_many(task_ids: Sequence[UUID], ttl: timedelta | None = None) -> Statement[dict[UUID, Status]]:
    """Request a notification when any of them ends. Returns the status of each task that may be read."""
    arguments = {"task_ids": Bound("uuid[]", list(task_ids)), "ttl": interval(ttl)}
    return call("queues.watch_many", Rows("answer.task_id, answer.status", _statuses), arguments)


def explain(task_id: UUID) -> Statement[Explanation]:
    """Returns why the task is not running now."""
    return call("queues.explain", EXPLANATION, {"task_id": uuid(task_id)})


def _explanation(rows: Sequence[Row]) -> Explanation:
    reasons = []
    for code, written, error in rows:
        facts = load_json(written)
        words = explanation_words(code, facts)
        reasons.append(Reason(code, facts, words.message, words.advice, error))
    return Explanation(reasons)


EXPLANATION = Rows("answer.code, answer.facts::text, answer.error", _explanation)


@sql_function("queues.replay")
def replay(task_id: UUID, reason: str | None = None) -> Statement[UUID]:
    """Enqueue a new task with the same specification. Returns its id."""


def list_tasks(
    matching: TaskFilter = EVERY_TASK, before: UUID | None = None, max_tasks: int | None = None
) -> Statement[list[TaskStatus]]:
    """Returns one page, newest first. It may be short although there are more tasks: see `find_tasks`."""
    arguments = _filters(matching, before, max_tasks)
    return call("queues.list_tasks", many(TaskStatus), arguments)


def find_tasks(
    matching: TaskFilter = EVERY_TASK,
    before: UUID | None = None,
    max_tasks: int | None = None,
    max_examined: int | None = None,
) -> Statement[FoundTasks]:
    """Returns the ids of the same page, and where the next one begins."""
    arguments = _filters(matching, before, max_tasks) | {"max_examined": integer(max_examined)}
    return call("queues.find_tasks", only(FoundTasks), arguments)


def find_named(name: str) -> Statement[FoundTasks]:
    """Tasks with this id or key, or whose id ends with it. See `is_named`: one may only contain it."""
    return find_tasks(TaskFilter(words=name, search_errors=False), max_examined=1)


def is_named(task: TaskLine, name: str) -> bool:
    task_id = str(task.task_id)
    is_end = len(name) >= MIN_DIGITS and task_id.endswith(name.lower())
    return is_end or name == task.idempotency_key or name.lower() == task_id.replace("-", "")


def enqueued_at(task_id: UUID) -> datetime:
    """The time in the id of a task, to the millisecond."""
    return datetime.fromtimestamp((task_id.int >> 80) / 1000, UTC)


@dataclass(slots=True)
class TaskSearch:
    """Asks for pages until one has a task, so that a rare task is found behind many newer ones.

    Ends when one is found, when there are no more tasks, or after `seconds`: then `next` says where to go on.
    """

    matching: TaskFilter
    before: UUID | None
    max_tasks: int
    seconds: float
    _began: float = field(default_factory=time.monotonic)

    def statement(self) -> Statement[FoundTasks]:
        return find_tasks(self.matching, self.before, self.max_tasks)

    def is_over(self, found: FoundTasks) -> bool:
        self.before = found.next
        return bool(found.task_ids) or found.next is None or time.monotonic() - self._began >= self.seconds

    def run(self, engine: Engine) -> FoundTasks:
        while not self.is_over(found := engine.run(self.statement())):
            pass
        return found

    async def run_async(self, engine: AsyncEngine) -> FoundTasks:
        while not self.is_over(found := await engine.run(self.statement())):
            pass
        return found


def tasks_with_ids(task_ids: Sequence[UUID]) -> Statement[list[TaskStatus]]:
    """Returns these tasks, newest first."""
    return _of_tasks(many(TaskStatus), "queues.tasks_of", task_ids, "order by answer.task_id desc")


def task_lines(task_ids: Sequence[UUID]) -> Statement[list[TaskLine]]:
    """Returns the same tasks without documents, newest first."""
    return _of_tasks(many(TaskLine), "queues.tasks_of", task_ids, "order by answer.task_id desc")


def failure_groups(task_ids: Sequence[UUID]) -> Statement[list[FailureGroup]]:
    """Groups tasks that have failed by what went wrong. The largest group comes first."""
    exception = "answer.error -> 'detail' ->> 'exception'"
    columns = (
        f"count(*), answer.type, answer.queue, answer.status, answer.error ->> 'kind', {exception},"
        " (array_agg(answer.task_id order by answer.finished_at desc))[1], max(answer.finished_at)"
    )
    rows = Rows(columns, lambda found: [FailureGroup(*row) for row in found])
    return _of_tasks(rows, "queues.tasks_of", task_ids, "group by 2, 3, 4, 5, 6 order by 1 desc, 8 desc")


def deletions_of(task_ids: Sequence[UUID]) -> Statement[list[TaskId]]:
    """Returns the same tasks without documents, for actions on many tasks."""
    return _of_tasks(many(TaskId), "queues.tasks_of", task_ids, "order by answer.task_id desc")


def task_status(task_id: UUID) -> Statement[TaskStatus | None]:
    return _of_tasks(first(TaskStatus), "queues.tasks_of", [task_id])


def task_snapshot(task_id: UUID) -> Statement[TaskSnapshot | None]:
    return _of_tasks(first(TaskSnapshot), "queues.tasks_of", [task_id])


def task_events(
    task_id: UUID, max_events: int | None = None, before: datetime | None = None
) -> Statement[list[TaskEvent]]:
    """Returns the history of a task in order: the last MAX_EVENTS events, or fewer, before that time."""
    return events_of([task_id], max_events, before)


def task_errors(task_id: UUID, max_errors: int = MAX_ERRORS) -> Statement[list[TaskError]]:
    """Failed attempts and failed tries of steps in order, at most the last MAX_ERRORS."""
    order = f"order by answer.error_id desc limit {int(max_errors)}"
    newest = _of_tasks(many(TaskError), "queues.task_errors_of", [task_id], order)
    sql = f"select * from ({newest.sql}) newest order by error_id"  # noqa: S608 - no text of a user
    return Statement(sql, newest.params, newest.decode)


def last_tries(task_ids: Sequence[UUID]) -> Statement[list[FailedTry]]:
    """The last failed try of each step of these tasks."""
    plain = [name for name in FailedTry.__dataclass_fields__ if name != "arguments"]
    fields = [*(f"answer.{name}" for name in plain), "answer.detail -> 'arguments'"]
    columns = f"distinct on (answer.task_id, answer.step) {', '.join(fields)}"
    rows = Rows(columns, lambda found: [FailedTry(*row) for row in found])
    order = "where answer.step is not null order by answer.task_id, answer.step, answer.step_try desc"
    return _of_tasks(rows, "queues.task_errors_of", task_ids, order)


def task_snapshots(task_ids: Sequence[UUID]) -> Statement[list[TaskSnapshot]]:
    return _of_tasks(many(TaskSnapshot), "queues.tasks_of", task_ids)


def events_of(
    task_ids: Sequence[UUID], max_events: int | None = None, before: datetime | None = None
) -> Statement[list[TaskEvent]]:
    """Returns the same of several tasks, one after the other."""
    arguments = {
        "task_ids": Bound("uuid[]", list(task_ids)),
        "max_events": integer(max_events),
        "before": timestamptz(before),
    }
    return call("queues.task_events_of", many(TaskEvent), arguments)


def older_than(events: Sequence[TaskEvent]) -> datetime | None:
    """Where the page before these events of one task ends, or None if they begin with its creation."""
    return None if not events or events[0].event_type == "created" else events[0].occurred_at


def _statuses(rows: Sequence[Row]) -> dict[UUID, Status]:
    return {task_id: status for task_id, status in rows}  # noqa: C416 - rows are sequences of any type


def _of_tasks(rows: Rows[T], function: str, task_ids: Sequence[UUID], order: str = "") -> Statement[T]:
    """By a function and not from its view, so that a front asks only the shards of these tasks."""
    found = call(function, rows, {"task_ids": Bound("uuid[]", list(task_ids))})
    return Statement(f"{found.sql} {order}", found.params, found.decode) if order else found


def _filters(matching: TaskFilter, before: UUID | None, max_tasks: int | None) -> dict[str, Argument]:
    return {
        "status": text(matching.status),
        "queue": text(matching.queue),
        "type_prefix": text(matching.type_prefix),
        "since": timestamptz(matching.since),
        "before": uuid(before),
        "max_tasks": integer(max_tasks),
        "spec_hash": text(matching.spec_hash),
        **search_arguments(matching),
    }


def search_arguments(matching: TaskFilter) -> dict[str, Argument]:
    return {
        "words": text(matching.words),
        "error_group": text(matching.error_group),
        "payload_path": text(matching.payload_path),
        "search_errors": None if matching.search_errors else boolean(matching.search_errors),
    }


def _counts(rows: Sequence[Row]) -> dict[str, int]:
    return {str(status): int(count) for status, count in rows}
