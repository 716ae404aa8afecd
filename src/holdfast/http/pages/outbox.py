"""The outbox: who gets which events, what became of them; hold back, go on, and send again."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast.engine import AsyncEngine
from holdfast.engine.events import (
    outbox_status,
    pause_subscription,
    redrive_events,
    resume_subscription,
    tail_events,
)
from holdfast.http.pages.page import Page, offer
from holdfast.http.pages.page_request import (
    PageRequest,
    read_action_form,
    read_page_request,
    reason_of,
    redirect_to,
)
from holdfast.http.problem import Problem

router = APIRouter(include_in_schema=False)

NEWEST = 30


async def load(visit: PageRequest) -> Mapping[str, Any]:
    async def look(engine: AsyncEngine) -> dict[str, Any]:
        events = await engine.run(tail_events(max_events=NEWEST))
        return {"subscriptions": await engine.run(outbox_status()), "events": list(reversed(events))}

    return await visit.site.read(look)


offer(router, "/outbox", Page("outbox.html", "/outbox", load))


@router.post("/outbox/{act}")
async def act_on_subscription(request: Request, act: str) -> Response:
    visit = await read_page_request(request)
    form = await read_action_form(visit, "operate")
    name = form.get("name", "")
    if act == "pause":
        reason = reason_of(form)
        await visit.site.operate(visit.caller, lambda engine: engine.run(pause_subscription(name, reason)))
    elif act == "resume":
        await visit.site.operate(visit.caller, lambda engine: engine.run(resume_subscription(name)))
    elif act == "redrive":
        await visit.site.operate(visit.caller, lambda engine: engine.run(redrive_events(name)))
    else:
        raise Problem(404, f"there is nothing at {request.url.path}")
    return redirect_to(visit, "/outbox", done=act, about=name)
