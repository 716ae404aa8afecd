"""Queues: what waits and runs in them, and whether anything is claimed from them."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Request

from holdfast.engine import queues
from holdfast.http.api import schemas
from holdfast.http.api.openapi_parts import problems
from holdfast.http.api.task_actions import BODY, read_reason
from holdfast.http.auth import MayOperate, MayRead
from holdfast.http.site import site_of

router = APIRouter(tags=["queues"])

QueueName = Annotated[str, Path(max_length=200, json_schema_extra=schemas.NAME_RULE, examples=["billing"])]


@router.get("/queues", response_model=schemas.Queues, summary="List queues", responses=problems())
async def list_queues(request: Request, caller: MayRead) -> schemas.Queues:
    del caller
    found = await site_of(request).read(lambda engine: engine.run(queues.queue_status()))
    return schemas.Queues.model_validate({"queues": [asdict(queue) for queue in found]})


@router.post(
    "/queues/{queue}/pause",
    response_model=schemas.Paused,
    summary="Let nothing be claimed from a queue",
    openapi_extra=BODY,
    responses=problems(404, 413, 415, 422),
)
async def pause_queue(request: Request, queue: QueueName, caller: MayOperate) -> schemas.Paused:
    reason = await read_reason(request)
    changed = await site_of(request).operate(caller, lambda engine: engine.run(queues.pause(queue, reason)))
    return schemas.Paused(queue=queue, paused=True, changed=changed)


@router.post(
    "/queues/{queue}/resume",
    response_model=schemas.Paused,
    summary="Let a paused queue go on",
    openapi_extra=BODY,
    responses=problems(404, 413, 415, 422),
)
async def resume_queue(request: Request, queue: QueueName, caller: MayOperate) -> schemas.Paused:
    reason = await read_reason(request)
    changed = await site_of(request).operate(caller, lambda engine: engine.run(queues.resume(queue, reason)))
    return schemas.Paused(queue=queue, paused=False, changed=changed)
