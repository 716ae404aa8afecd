"""The page Outbox: subscriptions and the newest events; pause, resume, send again."""

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

MAX_EVENTS = 30


async def load(request: PageRequest) -> Mapping[str, Any]:
    async def read(engine: AsyncEngine) -> dict[str, Any]:
        events = await engine.run(tail_events(max_events=MAX_EVENTS))
        return {"subscriptions": await engine.run(outbox_status()), "events": list(reversed(events))}

    return await request.site.read(read)


add_page(router, "/outbox", Page("outbox.html", "/outbox", load))


@router.post("/outbox/{action}")
async def act_on_subscription(request: Request, action: str) -> Response:
    page = await read_page_request(request)
    form = await read_action_form(page, "operate")
    name = form.get("name", "")
    if action == "pause":
        reason = required_reason(form)
        await page.site.operate(page.caller, pause_subscription(name, reason))
    elif action == "resume":
        await page.site.operate(page.caller, resume_subscription(name))
    elif action == "redrive":
        await page.site.operate(page.caller, redrive_events(name))
    else:
        raise no_such_page(request)
    return redirect_to(page, "/outbox", done=action, about=name)
