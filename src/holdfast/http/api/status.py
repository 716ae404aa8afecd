"""Read-only status: workers, schedules and health."""

from fastapi import APIRouter, Request

from holdfast.engine import schedules, workers
from holdfast.engine.health import HealthLine, Level
from holdfast.engine.schedules import ScheduleStatus
from holdfast.engine.workers import WorkerStatus
from holdfast.http.auth import MayRead
from holdfast.http.hidden_values import hide_line, hide_schedule
from holdfast.http.openapi import problems
from holdfast.http.schemas import ResponseModel
from holdfast.http.site import site_of

router = APIRouter(tags=["status"])

_WORST_FIRST: tuple[Level, ...] = ("red", "amber", "green")


class Workers(ResponseModel):
    workers: list[WorkerStatus]


class Schedules(ResponseModel):
    schedules: list[ScheduleStatus]


class Health(ResponseModel):
    level: Level
    lines: list[HealthLine]


@router.get("/workers", summary="List workers", responses=problems())
async def list_workers(request: Request, caller: MayRead) -> Workers:
    del caller
    return Workers(workers=await site_of(request).read(workers.worker_status()))


@router.get("/schedules", summary="List schedules", responses=problems())
async def list_schedules(request: Request, caller: MayRead) -> Schedules:
    del caller
    found = await site_of(request).read(schedules.schedule_status())
    shown = site_of(request).options.shows_values
    return Schedules(schedules=found if shown else [hide_schedule(schedule) for schedule in found])


@router.get("/health", summary="Check health", responses=problems())
async def show_health(request: Request, caller: MayRead) -> Health:
    """The worst line first. `level` is the level of the worst line."""
    del caller
    found = await site_of(request).health()
    levels = {line.level for line in found}
    worst = next((level for level in _WORST_FIRST if level in levels), "green")
    return Health(
        level=worst,
        lines=found if site_of(request).options.shows_values else [hide_line(line) for line in found],
    )
