"""Schedules and health: what is enqueued by the clock, and what is wrong."""

from dataclasses import asdict

from fastapi import APIRouter, Request

from holdfast.engine import health, schedules
from holdfast.http.api import schemas
from holdfast.http.api.openapi_parts import problems
from holdfast.http.auth import MayRead
from holdfast.http.hidden_values import hide_line
from holdfast.http.site import site_of

router = APIRouter(tags=["house"])

_WORST = ("red", "amber", "green")


@router.get("/schedules", response_model=schemas.Schedules, summary="List schedules", responses=problems())
async def list_schedules(request: Request, caller: MayRead) -> schemas.Schedules:
    del caller
    found = await site_of(request).read(lambda engine: engine.run(schedules.schedule_status()))
    return schemas.Schedules.model_validate({"schedules": [asdict(schedule) for schedule in found]})


@router.get(
    "/health", response_model=schemas.Health, summary="What is wrong, and what to do", responses=problems()
)
async def show_health(request: Request, caller: MayRead) -> schemas.Health:
    """The worst first. `level` is that of the worst line."""
    del caller
    found = await site_of(request).read(lambda engine: engine.run(health.health()))
    levels = {line.level for line in found}
    worst = next((level for level in _WORST if level in levels), "green")
    lines = [asdict(hide_line(line)) for line in found]
    return schemas.Health.model_validate({"level": worst, "lines": lines})
