"""The page Schedules: when each fires next; pause and resume."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast.engine import schedules
from holdfast.http.pages.page import Page, add_page
from holdfast.http.pages.page_request import (
    PageRequest,
    no_such_page,
    read_action_form,
    read_page_request,
    redirect_to,
    required_reason,
)

router = APIRouter(include_in_schema=False)


async def load(request: PageRequest) -> Mapping[str, Any]:
    found = await request.site.read(schedules.schedule_status())
    return {"schedules": found, "namespace": request.query("namespace")}


add_page(router, "/schedules", Page("schedules.html", "/schedules", load))


@router.post("/schedules/{action}")
async def act_on_schedule(request: Request, action: str) -> Response:
    page = await read_page_request(request)
    form = await read_action_form(page, "operate")
    name, namespace, reason = form.get("name", ""), form.get("namespace") or None, required_reason(form)
    if action == "pause":
        await page.site.operate(page.caller, schedules.pause_schedule(name, reason, namespace))
    elif action == "resume":
        await page.site.operate(page.caller, schedules.resume_schedule(name, reason, namespace))
    else:
        raise no_such_page(request)
    return redirect_to(page, "/schedules", done=f"{action}d", about=name, namespace=namespace or "")
