"""Queues: what waits and runs in each; pause and resume."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast.http.pages.page import Page, offer
from holdfast.http.pages.visit import Visit, go_to, read_act, reason_of, visit_of

router = APIRouter(include_in_schema=False)


async def load(visit: Visit) -> Mapping[str, Any]:
    return {"queues": await visit.site.read(lambda engine: engine.queue_status())}


offer(router, "/queues", Page("queues.html", "/queues", load))


@router.post("/queues/pause")
async def pause(request: Request) -> Response:
    visit = await visit_of(request)
    form = await read_act(visit, "operate")
    queue, reason = form.get("queue", ""), reason_of(form)
    await visit.site.operate(visit.caller, lambda engine: engine.pause(queue, reason))
    return go_to(visit, "/queues", done="paused", about=queue)


@router.post("/queues/resume")
async def resume(request: Request) -> Response:
    visit = await visit_of(request)
    form = await read_act(visit, "operate")
    queue, reason = form.get("queue", ""), reason_of(form)
    await visit.site.operate(visit.caller, lambda engine: engine.resume(queue, reason))
    return go_to(visit, "/queues", done="resumed", about=queue)
