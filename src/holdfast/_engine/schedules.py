"""Schedules: tasks that are enqueued at recurring times."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args
from uuid import UUID

from holdfast._engine.enqueue import NewTask, arguments_of, task_json
from holdfast._engine.statement import (
    Statement,
    call,
    document,
    integer,
    interval,
    many,
    scalar,
    select,
    sql_function,
    text,
    timestamptz,
)
from holdfast._serialization.text import (
    Json,
    json_array,
    json_object,
    require_storable,
    seconds_json,
    text_json,
    time_json,
)

CatchUp = Literal["skip", "latest", "all"]
CATCH_UPS: tuple[CatchUp, ...] = get_args(CatchUp)
Overlap = Literal["allow", "skip"]
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
ScheduleState = Literal["active", "paused", "orphaned", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """A task and when to enqueue it: by a cron expression in a time zone, or at an interval."""

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
    """The result of declaring a schedule, or of no longer declaring it."""

    name: str
    verdict: Literal["added", "changed", "unchanged", "taken", "orphaned", "elsewhere"]


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule that needs a decision: its next time, or what is due since `next_at`."""

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
class Decision:
    """What the leader computed for a schedule: its due times, none if it is only planned, and the next one.

    Without a next time it never fires again.
    """

    schedule: DueSchedule
    times: Sequence[datetime]
    next_at: datetime | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Firing:
    """The decision on one nominal time of a schedule, or the problem that keeps the schedule from firing."""

    name: str
    namespace: str
    nominal_at: datetime | None
    decision: Literal["fired", "overlapped", "missed"] | None
    task_id: UUID | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A schedule and its next time; `never` is true if it will not fire again."""

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
    """An entry in the history of a schedule: a firing, or an action on it."""

    schedule: str
    namespace: str
    event_type: str
    occurred_at: datetime
    nominal_at: datetime | None
    task_id: UUID | None
    actor: str | None
    reason: str | None


def add_schedule(schedule: NewSchedule) -> Statement[str]:
    """Returns `added`, or `unchanged` if the same schedule exists already."""
    arguments = {
        **arguments_of(schedule.task),
        "name": text(schedule.name),
        "cron": text(schedule.cron),
        "every": interval(schedule.every),
        "tz": text(schedule.tz),
        "anchor": timestamptz(schedule.anchor),
        "catch_up": text(schedule.catch_up),
        "catch_up_limit": integer(schedule.catch_up_limit),
        "jitter": interval(schedule.jitter),
        "overlap": text(schedule.overlap),
    }
    return call("queues.add_schedule", scalar, arguments)


def declare_schedules(application: str, schedules: Iterable[NewSchedule]) -> Statement[list[Declared]]:
    """Declare all schedules of an application. Those that it no longer declares become orphaned."""
    batch = json_array(_schedule_json(schedule) for schedule in schedules)
    arguments = {"application": text(application), "schedules": document(batch)}
    return call("queues.declare_schedules", many(Declared), arguments)


@sql_function("queues.pause_schedule")
def pause_schedule(name: str, reason: str | None = None, namespace: str | None = None) -> Statement[bool]:
    """Returns true if it was running until now."""


@sql_function("queues.resume_schedule")
def resume_schedule(name: str, reason: str | None = None, namespace: str | None = None) -> Statement[bool]:
    """Returns true if it was paused until now."""


@sql_function("queues.remove_schedule")
def remove_schedule(name: str, reason: str | None = None, namespace: str | None = None) -> Statement[None]:
    """The namespace may be left out where only one schedule has the name."""


@sql_function("queues.run_schedule")
def run_schedule(name: str, reason: str | None = None, namespace: str | None = None) -> Statement[UUID]:
    """Enqueue its task now. Returns the id of the task."""


@sql_function("queues.due_schedules")
def due_schedules(max_schedules: int | None = None) -> Statement[list[DueSchedule]]:
    """The schedules that need a decision."""


@sql_function("queues.next_firing")
def next_firing() -> Statement[timedelta | None]:
    """Returns how long until a schedule needs a decision; None if none ever does."""


def decide_schedules(decisions: Iterable[Decision]) -> Statement[list[Firing]]:
    """Decide on due times. A schedule on which another worker has already decided has no row."""
    batch = json_array(_decision_json(decision) for decision in decisions)
    return call("queues.decide_schedules", many(Firing), {"decisions": document(batch)})


@sql_function("queues.prune_firings")
def prune_firings(max_firings: int | None = None) -> Statement[int]:
    """Returns how many were removed."""


def schedule_status() -> Statement[list[ScheduleStatus]]:
    return select(many(ScheduleStatus), "queues.schedule_status", "order by name, namespace")


def schedule_events(name: str, namespace: str, max_events: int = 20) -> Statement[list[ScheduleEvent]]:
    """Returns the history of a schedule, newest first."""
    rest = """where answer.schedule = $1::text and answer.namespace = $2::text
      order by answer.occurred_at desc, answer.nominal_at desc limit $3::integer"""
    params = (require_storable("name", name), require_storable("namespace", namespace), max_events)
    return select(many(ScheduleEvent), "queues.schedule_event", rest, params)


def _decision_json(decision: Decision) -> str:
    due = decision.schedule
    return json_object(
        name=text_json("name", due.name),
        namespace=text_json("namespace", due.namespace),
        version=str(due.version),
        times=json_array(f'"{time.isoformat()}"' for time in decision.times) if decision.times else None,
        next_at='"infinity"' if decision.next_at is None else time_json("next_at", decision.next_at),
        problem=text_json("problem", decision.problem),
    )


def _schedule_json(schedule: NewSchedule) -> str:
    return json_object(
        name=text_json("name", schedule.name),
        task=task_json(schedule.task),
        cron=text_json("cron", schedule.cron),
        every=seconds_json(schedule.every),
        anchor=time_json("anchor", schedule.anchor),
        tz=text_json("tz", schedule.tz),
        catch_up=text_json("catch_up", schedule.catch_up),
        catch_up_limit=str(schedule.catch_up_limit),
        jitter=seconds_json(schedule.jitter),
        overlap=text_json("overlap", schedule.overlap),
    )
