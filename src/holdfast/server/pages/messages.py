"""The page Mailbox: messages kept instead of sent."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast._engine import access
from holdfast._engine.messages import list_mailbox
from holdfast.server.pages.page import Page, add_page
from holdfast.server.pages.page_request import (
    PageRequest,
    parse_id,
    read_action_form,
    read_page_request,
    required_reason,
)
from holdfast.server.problem import Problem

router = APIRouter(include_in_schema=False)


async def load_mailbox(request: PageRequest) -> Mapping[str, Any]:
    """The template hides subjects and bodies, which may contain login codes and links: see reveal_message."""
    messages = await request.site.read(list_mailbox(limit=100))
    return {"messages": messages, "shown": None}


mailbox = add_page(router, "/mailbox", Page("mailbox.html", "/mailbox", load_mailbox))


@router.post("/mailbox/{message_id}/reveal")
async def reveal_message(request: Request, message_id: str) -> Response:
    """Shows the message in this response only."""
    page = await read_page_request(request)
    reason = required_reason(await read_action_form(page, "operate"))
    number = parse_id(message_id, Problem(404, f"there is no message {message_id} in the mailbox"))
    await page.site.operate(page.caller, access.record_message_reveal(number, reason, page.address))
    return await mailbox.html(page, shown=number)
