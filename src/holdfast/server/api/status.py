"""Read-only status: workers, schedules and health."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import Field

from holdfast._engine import AsyncEngine, schedules, tasks, workers
from holdfast._engine.health import HealthLine, Level
from holdfast._engine.schedules import ScheduleStatus
from holdfast._engine.tasks import TaskLine
from holdfast._engine.workers import WorkerStatus
from holdfast.server.auth import MayRead
from holdfast.server.hidden_values import hide_line, hide_schedule
from holdfast.server.openapi import problems
from holdfast.server.problem import Problem
from holdfast.server.schemas import ResponseModel
from holdfast.server.site import read_health, site_of

router = APIRouter(tags=["status"])

WorkerId = Annotated[str, Path(max_length=1000, examples=["host-a-1234-5f3c"])]
_WORST_FIRST: tuple[Level, ...] = ("red", "amber", "green")


class Workers(ResponseModel):
    workers: list[WorkerStatus]


class Schedules(ResponseModel):
    schedules: list[ScheduleStatus]


class Health(ResponseModel):
    level: Level
    lines: list[HealthLine]


class WorkerDetail(ResponseModel):
    worker: WorkerStatus
    held: Annotated[list[TaskLine], Field(description="What it runs now, the longest first; at most 200.")]
    environment: Annotated[Any, Field(description="What it recorded about itself at its start, or null.")]


@router.get("/workers", summary="List workers", responses=problems())
async def list_workers(request: Request, caller: MayRead) -> Workers:
    del caller
    return Workers(workers=await site_of(request).read(workers.worker_status()))


@router.get("/workers/{worker_id:path}", summary="Show a worker and what it runs", responses=problems(404))
async def show_worker(request: Request, worker_id: WorkerId, caller: MayRead) -> WorkerDetail:
    del caller
    found = await site_of(request).read(lambda engine: read_worker(engine, worker_id))
    if found is None:
        raise Problem(404, f"there is no worker {worker_id!r}", code="QF404")
    return found


async def read_worker(engine: AsyncEngine, worker_id: str, max_held: int = 200) -> WorkerDetail | None:
    known = await engine.run(workers.worker_status())
    worker = next((one for one in known if one.worker_id == worker_id), None)
    if worker is None:
        return None
    held = [one.task_id for one in await engine.run(workers.held_by(worker_id, max_held))]
    lines = {line.task_id: line for line in await engine.run(tasks.task_lines(held))} if held else {}
    recorded = await engine.run(workers.provenance([worker_id]))
    return WorkerDetail(
        worker=worker,
        held=[lines[task_id] for task_id in held if task_id in lines],
        environment=recorded[-1].environment if recorded else None,
    )


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
    found = await site_of(request).read(read_health)
    levels = {line.level for line in found}
    worst = next((level for level in _WORST_FIRST if level in levels), "green")
    return Health(
        level=worst,
        lines=found if site_of(request).options.shows_values else [hide_line(line) for line in found],
    )
