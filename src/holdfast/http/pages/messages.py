"""The pages Processes (sends of e-mail and text messages) and Mailbox (messages kept instead of sent)."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast.engine import AsyncEngine, access
from holdfast.engine.messages import list_mailbox, list_sends, send_events, send_status
from holdfast.engine.processes import newest_processes, registered_processes
from holdfast.http.pages.page import Page, add_page
from holdfast.http.pages.page_request import (
    PageRequest,
    parse_id,
    read_action_form,
    read_page_request,
    required_reason,
)
from holdfast.http.problem import Problem

router = APIRouter(include_in_schema=False)

MAX_INSTANCES = 50
_SENDS = ("comms.send_email", "comms.send_sms")


async def load_processes(request: PageRequest) -> Mapping[str, Any]:
    """The sends of messages, and the newest instances of each other process."""

    async def read(engine: AsyncEngine) -> dict[str, Any]:
        known = await engine.run(registered_processes())
        others = [one.process for one in known if one.process not in _SENDS]
        instances = [(name, await engine.run(newest_processes(name, MAX_INSTANCES))) for name in others]
        return {"sends": await engine.run(list_sends()), "processes": instances}

    return await request.site.read(read)


async def load_send(request: PageRequest) -> Mapping[str, Any]:
    channel, given = request.http.path_params["channel"], request.http.path_params["send_id"]
    missing = Problem(404, f"there is no send {channel} {given}")
    if channel not in ("email", "sms"):
        raise missing
    send_id = parse_id(given, missing)

    async def read(engine: AsyncEngine) -> dict[str, Any]:
        send = await engine.run(send_status(channel, send_id))
        if send is None:
            raise missing
        events = await engine.run(send_events(channel, send_id))
        return {"send": send, "channel": channel, "events": events}

    return await request.site.read(read)


async def load_mailbox(request: PageRequest) -> Mapping[str, Any]:
    """The template hides subjects and bodies, which may contain login codes and links: see reveal_message."""
    messages = await request.site.read(list_mailbox(limit=100))
    return {"messages": messages, "shown": None}


add_page(router, "/processes", Page("processes.html", "/processes", load_processes))
add_page(router, "/processes/{channel}/{send_id}", Page("send.html", "/processes", load_send))
mailbox = add_page(router, "/mailbox", Page("mailbox.html", "/mailbox", load_mailbox))


@router.post("/mailbox/{message_id}/reveal")
async def reveal_message(request: Request, message_id: str) -> Response:
    """Shows the message in this response only."""
    page = await read_page_request(request)
    reason = required_reason(await read_action_form(page, "operate"))
    number = parse_id(message_id, Problem(404, f"there is no message {message_id} in the mailbox"))
    await page.site.operate(page.caller, access.record_message_reveal(number, reason, page.address))
    return await mailbox.html(page, shown=number)
