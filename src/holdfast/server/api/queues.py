"""Queues: what waits and runs in them; pause and resume."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import Field

from holdfast._engine import AsyncEngine, limits, queues
from holdfast._engine.limits import LimitStatus, WaitingKey
from holdfast._engine.queues import QueueStatus
from holdfast.server.auth import MayOperate, MayRead
from holdfast.server.openapi import REASON_BODY, problems
from holdfast.server.request_body import read_reason
from holdfast.server.schemas import NAME_RULE, QueuePause, ResponseModel
from holdfast.server.site import site_of

router = APIRouter(tags=["queues"])

QueueName = Annotated[str, Path(max_length=200, json_schema_extra=NAME_RULE, examples=["billing"])]


class WaitReason(ResponseModel):
    """A concurrency key with due tasks, and why they wait."""

    key: WaitingKey
    why: str


class Queues(ResponseModel):
    queues: list[QueueStatus]
    limits: list[LimitStatus]
    keys: Annotated[list[WaitReason], Field(description="At most 50, with the most waiting tasks first.")]


@router.get("/queues", summary="List queues, their limits, and the keys that wait", responses=problems())
async def list_queues(request: Request, caller: MayRead) -> Queues:
    del caller
    return await site_of(request).read(read_queues)


async def read_queues(engine: AsyncEngine) -> Queues:
    known = await engine.run(queues.queue_status())
    limited = await engine.run(limits.limit_status())
    keys = await engine.run(limits.list_waiting_keys())
    return Queues(
        queues=known,
        limits=limited,
        keys=[WaitReason(key=key, why=_reason(key, known, limited)) for key in keys],
    )


def _reason(key: WaitingKey, known: list[QueueStatus], limited: list[LimitStatus]) -> str:
    queue = next((one for one in known if one.queue == key.queue), None)
    if queue is not None and queue.paused_at is not None:
        return "the queue is paused"
    if key.running:
        return "a task of this key runs" if key.running == 1 else f"{key.running} tasks of this key run"
    if queue is not None and not queue.live_workers:
        return "no live worker serves the queue"
    full = any(one.subject == "queue" and one.name == key.queue and one.may_start == 0 for one in limited)
    return "the limit of the queue is reached" if full else "it is next"


@router.post(
    "/queues/{queue}/pause",
    summary="Pause a queue: workers claim nothing from it",
    openapi_extra=REASON_BODY,
    responses=problems(404, 413, 415, 422),
)
async def pause_queue(request: Request, queue: QueueName, caller: MayOperate) -> QueuePause:
    reason = await read_reason(request)
    changed = await site_of(request).operate(caller, queues.pause(queue, reason), repeatable=True)
    return QueuePause(queue=queue, paused=True, changed=changed)


@router.post(
    "/queues/{queue}/resume",
    summary="Resume a paused queue",
    openapi_extra=REASON_BODY,
    responses=problems(404, 413, 415, 422),
)
async def resume_queue(request: Request, queue: QueueName, caller: MayOperate) -> QueuePause:
    reason = await read_reason(request)
    changed = await site_of(request).operate(caller, queues.resume(queue, reason), repeatable=True)
    return QueuePause(queue=queue, paused=False, changed=changed)
