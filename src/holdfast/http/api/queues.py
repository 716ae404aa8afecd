"""Queues: what waits and runs in them; pause and resume."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from holdfast.engine import queues
from holdfast.engine.queues import QueueStatus
from holdfast.http.auth import MayOperate, MayRead
from holdfast.http.openapi import REASON_BODY, problems
from holdfast.http.request_body import read_reason
from holdfast.http.schemas import NAME_RULE, QueuePause, ResponseModel
from holdfast.http.site import site_of

router = APIRouter(tags=["queues"])

QueueName = Annotated[str, Path(max_length=200, json_schema_extra=NAME_RULE, examples=["billing"])]


class Queues(ResponseModel):
    queues: list[QueueStatus]


@router.get("/queues", summary="List queues", responses=problems())
async def list_queues(request: Request, caller: MayRead) -> Queues:
    del caller
    return Queues(queues=await site_of(request).read(queues.queue_status()))


@router.post(
    "/queues/{queue}/pause",
    summary="Pause a queue: workers claim nothing from it",
    openapi_extra=REASON_BODY,
    responses=problems(404, 413, 415, 422),
)
async def pause_queue(request: Request, queue: QueueName, caller: MayOperate) -> QueuePause:
    reason = await read_reason(request)
    changed = await site_of(request).operate(caller, queues.pause(queue, reason))
    return QueuePause(queue=queue, paused=True, changed=changed)


@router.post(
    "/queues/{queue}/resume",
    summary="Resume a paused queue",
    openapi_extra=REASON_BODY,
    responses=problems(404, 413, 415, 422),
)
async def resume_queue(request: Request, queue: QueueName, caller: MayOperate) -> QueuePause:
    reason = await read_reason(request)
    changed = await site_of(request).operate(caller, queues.resume(queue, reason))
    return QueuePause(queue=queue, paused=False, changed=changed)
