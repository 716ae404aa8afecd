"""Actions on one task: cancel, retry, delete, restore. The dashboard offers the same."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from fastapi import APIRouter, Request

from holdfast._engine import AsyncEngine, Statement, tasks
from holdfast.errors import InvalidState
from holdfast.server.auth import MayOperate
from holdfast.server.openapi import REASON_BODY, problems
from holdfast.server.request_body import read_reason
from holdfast.server.schemas import TaskActionResult
from holdfast.server.site import site_of

router = APIRouter(tags=["task actions"])


@dataclass(frozen=True, slots=True)
class TaskAction:
    """`statement` returns the new status. `errors` are the HTTP statuses of this action's own errors."""

    name: str
    past: str
    summary: str
    statement: Callable[[UUID, str | None], Statement[str]]
    errors: tuple[int, ...] = ()

    @property
    def repeatable(self) -> bool:
        """Whether doing it twice changes nothing. A second retry would retry what failed since the first."""
        return self.name == "cancel"

    async def run(self, engine: AsyncEngine, task_id: UUID, reason: str | None) -> str:
        status = await engine.run(self.statement(task_id, reason))
        if self.name == "cancel" and status != "cancelled":
            raise InvalidState(
                f"task {task_id} cannot be cancelled: it has already ended ({status})", sqlstate="QF412"
            )
        return status


ACTIONS = {
    action.name: action
    for action in (
        TaskAction("cancel", "cancelled", "Cancel a task that has not ended", tasks.cancel, (412,)),
        TaskAction(
            "retry",
            "retried",
            "Retry a task that failed or was cancelled, with a new set of attempts",
            tasks.retry,
            (412,),
        ),
        TaskAction("delete", "deleted", "Delete a task; it can be restored", tasks.delete_task),
        TaskAction(
            "restore",
            "restored",
            "Restore a deleted task to its previous status",
            tasks.restore_task,
            (409,),
        ),
    )
}


def _add_route(action: TaskAction) -> None:
    async def run_action(request: Request, task_id: UUID, caller: MayOperate) -> TaskActionResult:
        reason = await read_reason(request)
        status = await site_of(request).operate(
            caller, lambda engine: action.run(engine, task_id, reason), repeatable=action.repeatable
        )
        return TaskActionResult.model_validate({"task_id": task_id, "status": status})

    router.post(
        f"/tasks/{{task_id}}/{action.name}",
        name=f"{action.name}_task",
        summary=action.summary,
        response_model=TaskActionResult,
        openapi_extra=REASON_BODY,
        responses=problems(404, 413, 415, 422, *action.errors),
    )(run_action)


for _action in ACTIONS.values():
    _add_route(_action)
