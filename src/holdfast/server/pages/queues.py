"""The page Queues: what waits and runs in each, what limits it; pause and resume."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast._engine import queues
from holdfast.server.api.queues import read_queues
from holdfast.server.pages.page import Page, add_page
from holdfast.server.pages.page_request import (
    PageRequest,
    no_such_page,
    read_action_form,
    read_page_request,
    redirect_to,
    required_reason,
)

router = APIRouter(include_in_schema=False)


async def load(request: PageRequest) -> Mapping[str, Any]:
    found = await request.read_shared("queues", read_queues)
    return {"queues": found.queues, "limits": found.limits, "keys": found.keys}


add_page(router, "/queues", Page("queues.html", "/queues", load))


@router.post("/queues/{action}")
async def act_on_queue(request: Request, action: str) -> Response:
    page = await read_page_request(request)
    form = await read_action_form(page, "operate")
    queue, reason = form.get("queue", ""), required_reason(form)
    if action == "pause":
        await page.site.operate(page.caller, queues.pause(queue, reason), repeatable=True)
    elif action == "resume":
        await page.site.operate(page.caller, queues.resume(queue, reason), repeatable=True)
    else:
        raise no_such_page(request)
    return redirect_to(page, "/queues", done=f"{action}d", about=queue)
