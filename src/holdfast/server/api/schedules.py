"""One schedule: its next runs, its last outcomes; run now, pause and resume."""

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field

from holdfast._engine import AsyncEngine, schedules, tasks
from holdfast._engine.schedules import ScheduleEvent, ScheduleStatus
from holdfast._engine.tasks import TaskLine
from holdfast._worker.recurrence import next_times, recurrence_of, zone_of
from holdfast.errors import RequestRefused
from holdfast.server.auth import MayOperate, MayRead
from holdfast.server.hidden_values import hide_schedule
from holdfast.server.openapi import REASON_BODY, problems
from holdfast.server.problem import Problem
from holdfast.server.request_body import read_reason
from holdfast.server.schemas import ResponseModel
from holdfast.server.site import site_of

router = APIRouter(tags=["schedules"])

NEXT_TIMES = 5
MAX_EVENTS = 50
ScheduleName = Annotated[str, Path(max_length=200, examples=["nightly-report"])]
Namespace = Annotated[
    str | None, Query(max_length=200, description="If schedules of several namespaces have this name.")
]


class ScheduleDetail(ResponseModel):
    schedule: ScheduleStatus
    next_runs: Annotated[list[datetime], Field(description="The next five, in the requested zone.")]
    history: Annotated[list[ScheduleEvent], Field(description="Firings and acts, newest first.")]
    tasks: Annotated[list[TaskLine], Field(description="The tasks of the history, with their outcomes.")]


class SchedulePause(ResponseModel):
    name: str
    paused: bool
    changed: Annotated[bool, Field(description="False if it was in this state already.")]


class ScheduledTask(ResponseModel):
    name: str
    task_id: UUID


@router.get("/schedules/{name}", summary="Show a schedule", responses=problems(404))
async def show_schedule(
    request: Request,
    name: ScheduleName,
    caller: MayRead,
    *,
    namespace: Namespace = None,
    zone: Annotated[
        str | None, Query(max_length=100, description="IANA name. Default: the zone of the schedule.")
    ] = None,
) -> ScheduleDetail:
    del caller
    site = site_of(request)
    found = await site.read(lambda engine: read_schedule(engine, name, namespace, zone))
    if found is None:
        raise Problem(404, f"there is no schedule {name!r}", code="QF404")
    if not site.options.shows_values:
        found.schedule = hide_schedule(found.schedule)
    return found


async def read_schedule(
    engine: AsyncEngine, name: str, namespace: str | None, zone: str | None
) -> ScheduleDetail | None:
    known = await engine.run(schedules.schedule_status())
    found = [one for one in known if one.name == name and namespace in (None, "", one.namespace)]
    if not found:
        return None
    if len(found) > 1:
        raise Problem(
            400,
            f"schedule {name!r} exists in {len(found)} namespaces: "
            + ", ".join(sorted(one.namespace for one in found)),
            hint="Name the namespace: ?namespace=…",
        )
    [one] = found
    history = await engine.run(schedules.schedule_events(one.name, one.namespace, MAX_EVENTS))
    enqueued = [event.task_id for event in history if event.task_id is not None]
    return ScheduleDetail(
        schedule=one,
        next_runs=_next_runs(one, zone),
        history=history,
        tasks=await engine.run(tasks.task_lines(enqueued)) if enqueued else [],
    )


def _next_runs(one: ScheduleStatus, zone: str | None) -> list[datetime]:
    """None of a schedule that never fires again, or whose expression can no longer be read."""
    where = zone_of(zone or one.tz or "UTC")
    if one.never or one.paused_at is not None:
        return []
    try:
        recurrence = recurrence_of(one.cron, one.tz, one.every, one.anchor)
        first = one.next_at or recurrence.after(datetime.now(UTC))  # no leader has planned a new one yet
        times = next_times(recurrence, first, NEXT_TIMES)
    except RequestRefused:
        return []
    return [at.astimezone(where) for at in times]


@router.post(
    "/schedules/{name}/run",
    summary="Enqueue the task of a schedule now",
    openapi_extra=REASON_BODY,
    responses=problems(404, 409, 412, 413, 415, 422),
)
async def run_schedule(
    request: Request, name: ScheduleName, caller: MayOperate, *, namespace: Namespace = None
) -> ScheduledTask:
    reason = await read_reason(request)
    statement = schedules.run_schedule(name, reason, namespace)
    return ScheduledTask(name=name, task_id=await site_of(request).operate(caller, statement))


@router.post(
    "/schedules/{name}/pause",
    summary="Pause a schedule: it enqueues nothing",
    openapi_extra=REASON_BODY,
    responses=problems(404, 413, 415, 422),
)
async def pause_schedule(
    request: Request, name: ScheduleName, caller: MayOperate, *, namespace: Namespace = None
) -> SchedulePause:
    reason = await read_reason(request)
    statement = schedules.pause_schedule(name, reason, namespace)
    changed = await site_of(request).operate(caller, statement, repeatable=True)
    return SchedulePause(name=name, paused=True, changed=changed)


@router.post(
    "/schedules/{name}/resume",
    summary="Resume a schedule",
    openapi_extra=REASON_BODY,
    responses=problems(404, 413, 415, 422),
)
async def resume_schedule(
    request: Request, name: ScheduleName, caller: MayOperate, *, namespace: Namespace = None
) -> SchedulePause:
    reason = await read_reason(request)
    statement = schedules.resume_schedule(name, reason, namespace)
    changed = await site_of(request).operate(caller, statement, repeatable=True)
    return SchedulePause(name=name, paused=False, changed=changed)
