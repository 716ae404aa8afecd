"""The pages Outbox and of one subscription: backlog, failed deliveries; pause, resume, send again."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast._engine import AsyncEngine, deliveries
from holdfast._engine.deliveries import DeliveryState
from holdfast._engine.events import outbox_status, pause_subscription, resume_subscription, tail_events
from holdfast.server.api.subscriptions import redrive
from holdfast.server.hidden_values import hide_delivery, hide_subscription
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

MAX_EVENTS = 30
MAX_DELIVERIES = 100
_STATES: tuple[tuple[DeliveryState, str], ...] = (
    ("dead", "Failed"),
    ("outstanding", "Outstanding"),
    ("delivered", "Delivered"),
)


async def load(request: PageRequest) -> Mapping[str, Any]:
    async def read(engine: AsyncEngine) -> dict[str, Any]:
        events = await engine.run(tail_events(max_events=MAX_EVENTS))
        return {"subscriptions": await engine.run(outbox_status()), "events": list(reversed(events))}

    found = await request.site.read(read)
    if not request.shows_values:
        found["subscriptions"] = [hide_subscription(one) for one in found["subscriptions"]]
    return found


async def load_one(request: PageRequest) -> Mapping[str, Any]:
    name = request.query("name")
    state = next((one for one, _ in _STATES if one == request.query("status")), _STATES[0][0])

    async def read(engine: AsyncEngine) -> dict[str, Any]:
        known = await engine.run(outbox_status())
        one = next((one for one in known if one.name == name), None)
        if one is None:
            raise Problem(404, f"there is no subscription {name!r}", hint="It may have been removed.")
        return {
            "subscription": one,
            "deliveries": await engine.run(deliveries.list_deliveries(name, state, MAX_DELIVERIES)),
            "acts": await engine.run(deliveries.subscription_events(name)),
        }

    found = await request.site.read(read)
    if not request.shows_values:
        found["subscription"] = hide_subscription(found["subscription"])
        found["deliveries"] = [hide_delivery(one) for one in found["deliveries"]]
    return found | {"state": state, "states": _STATES, "most": MAX_DELIVERIES}


add_page(router, "/outbox", Page("outbox.html", "/outbox", load))
add_page(router, "/outbox/show", Page("subscription.html", "/outbox", load_one))


@router.post("/outbox/{action}")
async def act_on_subscription(request: Request, action: str) -> Response:
    page = await read_page_request(request)
    form = await read_action_form(page, "operate")
    name, reason = form.get("name", ""), required_reason(form)
    if action == "pause":
        await page.site.operate(page.caller, pause_subscription(name, reason), repeatable=True)
    elif action == "resume":
        await page.site.operate(page.caller, resume_subscription(name, reason), repeatable=True)
    elif action == "redrive":
        event_id, until = _parsed(form)
        sent = await redrive(page.site, page.caller, name, event_id=event_id, until=until, reason=reason)
        return redirect_to(page, "/outbox/show", name=name, done="redriven", about=str(sent))
    else:
        raise no_such_page(request)
    return redirect_to(page, "/outbox/show", name=name, done=action, about=name)


def _parsed(form: dict[str, str]) -> tuple[UUID | None, datetime | None]:
    """The event, or the time of the preview: events that fail later are not sent again."""
    event_id, until = form.get("event_id"), form.get("until")
    try:
        return UUID(event_id) if event_id else None, datetime.fromisoformat(until) if until else None
    except ValueError:
        raise Problem(400, "the form has no valid event or time; reload the page") from None
