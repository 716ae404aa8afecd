"""The pages Schedules and of one schedule: when it fires, what it led to; run now, pause and resume."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast.engine import AsyncEngine, schedules, tasks
from holdfast.engine.schedules import ScheduleStatus
from holdfast.errors import Refused
from holdfast.http.pages.page import Page, add_page
from holdfast.http.pages.page_request import (
    PageRequest,
    no_such_page,
    read_action_form,
    read_page_request,
    redirect_to,
    required_reason,
)
from holdfast.http.problem import Problem
from holdfast.recurrence import next_times, recurrence_of

router = APIRouter(include_in_schema=False)

NEXT_TIMES = 5
MAX_EVENTS = 50


async def load(request: PageRequest) -> Mapping[str, Any]:
    found = await request.site.read(schedules.schedule_status())
    return {"schedules": found, "namespace": request.query("namespace")}


async def load_one(request: PageRequest) -> Mapping[str, Any]:
    name, namespace = request.query("name"), request.query("namespace")

    async def read(engine: AsyncEngine) -> dict[str, Any]:
        known = await engine.run(schedules.schedule_status())
        one = next((one for one in known if one.name == name and namespace in ("", one.namespace)), None)
        if one is None:
            raise Problem(404, f"there is no schedule {name!r}", hint="It may have been removed.")
        events = await engine.run(schedules.schedule_events(one.name, one.namespace, MAX_EVENTS))
        enqueued = [event.task_id for event in events if event.task_id is not None]
        lines = await engine.run(tasks.task_lines(enqueued)) if enqueued else []
        return {"schedule": one, "events": events, "tasks": {line.task_id: line for line in lines}}

    found = await request.site.read(read)
    return found | {"times": _next_times(found["schedule"]), "namespace": namespace}


def _next_times(one: ScheduleStatus) -> list[Any]:
    """Without those of a schedule that never fires again, or whose expression can no longer be read."""
    if one.never or one.paused_at is not None:
        return []
    try:
        return next_times(recurrence_of(one.cron, one.tz, one.every, one.anchor), one.next_at, NEXT_TIMES)
    except Refused:
        return []


add_page(router, "/schedules", Page("schedules.html", "/schedules", load))
add_page(router, "/schedules/show", Page("schedule.html", "/schedules", load_one))


@router.post("/schedules/{action}")
async def act_on_schedule(request: Request, action: str) -> Response:
    page = await read_page_request(request)
    form = await read_action_form(page, "operate")
    name, namespace, reason = form.get("name", ""), form.get("namespace") or None, required_reason(form)
    if action == "run":
        task_id = await page.site.operate(page.caller, schedules.run_schedule(name, reason, namespace))
        return redirect_to(page, f"/tasks/{task_id}", done="scheduled")
    if action == "pause":
        await page.site.operate(page.caller, schedules.pause_schedule(name, reason, namespace))
    elif action == "resume":
        await page.site.operate(page.caller, schedules.resume_schedule(name, reason, namespace))
    else:
        raise no_such_page(request)
    return redirect_to(page, "/schedules", done=f"{action}d", about=name, namespace=namespace or "")
