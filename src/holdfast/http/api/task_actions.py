"""What people do to a task they name: cancel, retry, delete, restore."""

from collections.abc import Awaitable, Callable
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import TypeAdapter

from holdfast.engine import AsyncEngine, tasks
from holdfast.errors import IllegalMove
from holdfast.http import request_body
from holdfast.http.access import Caller
from holdfast.http.api import schemas
from holdfast.http.api.openapi_parts import described, json_body, problems
from holdfast.http.auth import MayOperate
from holdfast.http.site import site_of

router = APIRouter(tags=["acts"])

Doing = Callable[[AsyncEngine, UUID, str | None], Awaitable[str]]

_ACT = TypeAdapter(schemas.Act)
BODY = json_body(described(schemas.Act), required=False)


async def cancel_or_refuse(engine: AsyncEngine, task_id: UUID, reason: str | None) -> str:
    status = await engine.run(tasks.cancel(task_id, reason))
    if status != "cancelled":
        raise IllegalMove(
            f"task {task_id} cannot be cancelled: it had already ended, {status}", sqlstate="QF412"
        )
    return status


async def read_reason(request: Request) -> str | None:
    return request_body.checked(_ACT, request_body.parse(await request_body.read_optional(request))).reason


async def _act(request: Request, caller: Caller, task_id: UUID, doing: Doing) -> schemas.Acted:
    reason = await read_reason(request)
    status = await site_of(request).operate(caller, lambda engine: doing(engine, task_id, reason))
    return schemas.Acted.model_validate({"task_id": task_id, "status": status})


def _offer(path: str, summary: str, *refusals: int, doing: Doing) -> None:
    async def act(request: Request, task_id: UUID, caller: MayOperate) -> schemas.Acted:
        return await _act(request, caller, task_id, doing)

    router.post(
        f"/tasks/{{task_id}}/{path}",
        name=f"{path}_task",
        summary=summary,
        response_model=schemas.Acted,
        openapi_extra=BODY,
        responses=problems(404, 413, 415, 422, *refusals),
    )(act)


_offer("cancel", "Cancel a task that has not ended", 412, doing=cancel_or_refuse)
_offer(
    "retry",
    "Give a task that failed, died or was cancelled a fresh set of attempts",
    412,
    doing=lambda engine, task_id, reason: engine.run(tasks.retry(task_id, reason)),
)
_offer(
    "delete",
    "Delete a task so that it can be restored",
    doing=lambda engine, task_id, reason: engine.run(tasks.delete_task(task_id, reason)),
)
_offer(
    "restore",
    "Restore a deleted task to the place that it had",
    409,
    doing=lambda engine, task_id, reason: engine.run(tasks.restore_task(task_id, reason)),
)
