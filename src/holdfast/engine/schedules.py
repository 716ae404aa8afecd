"""Schedules: tasks that are enqueued by the clock."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args
from uuid import UUID

from holdfast.engine.documents import (
    Json,
    array_of,
    dump_json,
    object_of,
    storable_text,
    written_instant,
    written_seconds,
)
from holdfast.engine.enqueue import NewTask, written_task
from holdfast.engine.statement import (
    Argument,
    Bound,
    Statement,
    call,
    columns_of,
    document,
    instant,
    integer,
    many,
    nothing,
    scalar,
    span,
    text,
)

CatchUp = Literal["skip", "latest", "all"]
CATCH_UPS: tuple[CatchUp, ...] = get_args(CatchUp)
Overlap = Literal["allow", "skip"]
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
ScheduleState = Literal["active", "paused", "orphaned", "broken"]


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
class Declared:
    """What became of a schedule that an application's code has, or has no longer."""

    name: str
    verdict: Literal["added", "changed", "unchanged", "taken", "orphaned"]


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule that somebody has to decide on: when next, or what is due since `next_at`."""

    name: str
    namespace: str
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
    namespace: str
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
    namespace: str
    event_type: str
    occurred_at: datetime
    nominal_at: datetime | None
    task_id: UUID | None
    actor: str | None
    reason: str | None


def add_schedule(schedule: NewSchedule) -> Statement[str]:
    """Answers added, or unchanged if it is there already."""
    task = schedule.task
    arguments = {
        "name": text(schedule.name),
        "type": text(task.type),
        "payload": document(task.payload),
        "cron": text(schedule.cron),
        "every": span(schedule.every),
        "tz": text(schedule.tz),
        "anchor": instant(schedule.anchor),
        "catch_up": text(schedule.catch_up),
        "catch_up_limit": integer(schedule.catch_up_limit),
        "jitter": span(schedule.jitter),
        "overlap": text(schedule.overlap),
        "queue": text(task.queue),
        "priority": integer(task.priority),
        "max_attempts": integer(task.max_attempts),
        "timeout": span(task.timeout),
        "lease": span(task.lease),
        "executor": text(task.executor),
        "metadata": None if task.metadata is None else document(task.metadata),
        "concurrency_key": text(task.concurrency_key),
    }
    return call("queues.add_schedule", scalar, arguments)


def declare_schedules(application: str, schedules: Iterable[NewSchedule]) -> Statement[list[Declared]]:
    """All that an application's code has; those that it has no longer are orphaned."""
    batch = array_of(_written(schedule) for schedule in schedules)
    arguments = {"application": text(application), "schedules": document(batch)}
    return call("queues.declare_schedules", many(Declared), arguments, columns_of(Declared))


def pause_schedule(name: str, reason: str | None = None, namespace: str | None = None) -> Statement[bool]:
    """Answers whether it was running until now."""
    return call("queues.pause_schedule", scalar, _act(name, reason, namespace))


def resume_schedule(name: str, reason: str | None = None, namespace: str | None = None) -> Statement[bool]:
    """Answers whether it was paused until now."""
    return call("queues.resume_schedule", scalar, _act(name, reason, namespace))


def remove_schedule(name: str, reason: str | None = None, namespace: str | None = None) -> Statement[None]:
    return call("queues.remove_schedule", nothing, _act(name, reason, namespace))


def run_schedule(name: str, reason: str | None = None, namespace: str | None = None) -> Statement[UUID]:
    """Enqueues its task now; answers the id."""
    return call("queues.run_schedule", scalar, _act(name, reason, namespace))


def due_schedules(max_schedules: int | None = None) -> Statement[list[DueSchedule]]:
    arguments = {"max_schedules": integer(max_schedules)}
    return call("queues.due_schedules", many(DueSchedule), arguments, columns_of(DueSchedule))


def next_firing() -> Statement[timedelta | None]:
    """How long until a schedule has to be decided on; None if none ever has."""
    return call("queues.next_firing", scalar, {})


def plan_schedule(due: DueSchedule, next_at: datetime | None, problem: str | None = None) -> Statement[bool]:
    """Without a next time, there is none. Answers whether the version was the current one."""
    arguments = {
        "name": text(due.name),
        "namespace": text(due.namespace),
        "version": Bound("bigint", due.version),
        "next_at": _or_never(next_at),
        "problem": text(problem),
    }
    return call("queues.plan_schedule", scalar, arguments)


def fire_schedule(
    due: DueSchedule, nominal_times: Sequence[datetime], next_at: datetime | None
) -> Statement[list[Firing]]:
    """Answers what was decided; nothing if somebody else has decided already."""
    arguments = {
        "name": text(due.name),
        "namespace": text(due.namespace),
        "version": Bound("bigint", due.version),
        "nominal_times": Bound("timestamptz[]", list(nominal_times)),
        "next_at": _or_never(next_at),
    }
    return call("queues.fire_schedule", many(Firing), arguments, columns_of(Firing))


def prune_firings(max_firings: int | None = None) -> Statement[int]:
    return call("queues.prune_firings", scalar, {"max_firings": integer(max_firings)})


def schedule_status() -> Statement[list[ScheduleStatus]]:
    sql = f"select {columns_of(ScheduleStatus)} from queues.schedule_status answer order by name, namespace"  # noqa: S608 - our names only
    return Statement(sql, (), many(ScheduleStatus))


def schedule_events(name: str, namespace: str, most: int = 20) -> Statement[list[ScheduleEvent]]:
    """The newest first."""
    sql = f"""select {columns_of(ScheduleEvent)} from queues.schedule_event answer
      where answer.schedule = $1::text and answer.namespace = $2::text
      order by answer.occurred_at desc, answer.nominal_at desc limit $3::integer"""  # noqa: S608 - our names only
    return Statement(
        sql, (storable_text("name", name), storable_text("namespace", namespace), most), many(ScheduleEvent)
    )


def _act(name: str, reason: str | None, namespace: str | None) -> dict[str, Argument]:
    """Without a namespace, the only schedule of the name is meant."""
    return {"name": text(name), "reason": text(reason), "namespace": text(namespace)}


def _or_never(next_at: datetime | None) -> Argument:
    return Bound("text::timestamptz", "infinity") if next_at is None else instant(next_at)


def _written(schedule: NewSchedule) -> str:
    return object_of(
        name=_json_text("name", schedule.name),
        task=written_task(schedule.task),
        cron=_json_text("cron", schedule.cron),
        every=written_seconds(schedule.every),
        anchor=written_instant("anchor", schedule.anchor),
        tz=_json_text("tz", schedule.tz),
        catch_up=_json_text("catch_up", schedule.catch_up),
        catch_up_limit=str(schedule.catch_up_limit),
        jitter=written_seconds(schedule.jitter),
        overlap=_json_text("overlap", schedule.overlap),
    )


def _json_text(field: str, value: str | None) -> str | None:
    return None if value is None else dump_json(field, storable_text(field, value))
