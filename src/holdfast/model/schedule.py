"""Schedules, and what they fire."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args
from uuid import UUID

from holdfast.model.document import Json
from holdfast.model.task import NewTask

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
