"""The pages Schedules and of one schedule: when it fires, what it led to; run now, pause and resume."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast._engine import schedules
from holdfast._worker.recurrence import zone_of
from holdfast.errors import RequestRefused
from holdfast.server.api.schedules import read_schedule
from holdfast.server.hidden_values import hide_schedule
from holdfast.server.pages.page import Page, add_page
from holdfast.server.pages.page_request import (
    PageRequest,
    no_such_page,
    read_action_form,
    read_page_request,
    redirect_to,
    required_reason,
)
from holdfast.server.problem import Problem

router = APIRouter(include_in_schema=False)


async def load(request: PageRequest) -> Mapping[str, Any]:
    found = await request.site.read(schedules.schedule_status())
    shown = found if request.shows_values else [hide_schedule(one) for one in found]
    return {"schedules": shown, "namespace": request.query("namespace")}


async def load_one(request: PageRequest) -> Mapping[str, Any]:
    """With the next runs in the zone of the viewer, and in a named one: by default that of the schedule."""
    name, namespace, zone = request.query("name"), request.query("namespace"), request.query("zone")
    problem = None
    try:
        zone_of(zone or "UTC")
    except RequestRefused as error:
        problem, zone = str(error), ""
    found = await request.site.read(lambda engine: read_schedule(engine, name, namespace, zone))
    if found is None:
        raise Problem(404, f"there is no schedule {name!r}", hint="It may have been removed.")
    return {
        "schedule": found.schedule if request.shows_values else hide_schedule(found.schedule),
        "times": found.next_runs,
        "events": found.history,
        "tasks": {line.task_id: line for line in found.tasks},
        "namespace": namespace,
        "zone": zone or found.schedule.tz or "UTC",
        "zone_problem": problem,
    }


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
        statement = schedules.pause_schedule(name, reason, namespace)
        await page.site.operate(page.caller, statement, repeatable=True)
    elif action == "resume":
        statement = schedules.resume_schedule(name, reason, namespace)
        await page.site.operate(page.caller, statement, repeatable=True)
    else:
        raise no_such_page(request)
    return redirect_to(page, "/schedules", done=f"{action}d", about=name, namespace=namespace or "")
