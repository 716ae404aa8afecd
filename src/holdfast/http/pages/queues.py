"""Queues: what waits and runs in each; pause and resume."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast.engine import queues
from holdfast.http.pages.page import Page, offer
from holdfast.http.pages.page_request import (
    PageRequest,
    read_action_form,
    read_page_request,
    reason_of,
    redirect_to,
)

router = APIRouter(include_in_schema=False)


async def load(visit: PageRequest) -> Mapping[str, Any]:
    return {"queues": await visit.site.read(lambda engine: engine.run(queues.queue_status()))}


offer(router, "/queues", Page("queues.html", "/queues", load))


@router.post("/queues/pause")
async def pause(request: Request) -> Response:
    visit = await read_page_request(request)
    form = await read_action_form(visit, "operate")
    queue, reason = form.get("queue", ""), reason_of(form)
    await visit.site.operate(visit.caller, lambda engine: engine.run(queues.pause(queue, reason)))
    return redirect_to(visit, "/queues", done="paused", about=queue)


@router.post("/queues/resume")
async def resume(request: Request) -> Response:
    visit = await read_page_request(request)
    form = await read_action_form(visit, "operate")
    queue, reason = form.get("queue", ""), reason_of(form)
    await visit.site.operate(visit.caller, lambda engine: engine.run(queues.resume(queue, reason)))
    return redirect_to(visit, "/queues", done="resumed", about=queue)
