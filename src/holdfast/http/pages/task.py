"""One task: its life, its attempts, its documents, and what may be done to it."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast.engine import AsyncEngine, access, tasks
from holdfast.engine.tasks import TaskError, TaskEvent, TaskStatus
from holdfast.http.api.task_actions import Doing, cancel_or_refuse
from holdfast.http.hidden_values import hide_error, hide_event, hide_task, hide_why
from holdfast.http.pages.page import Page, offer
from holdfast.http.pages.page_request import (
    PageRequest,
    read_action_form,
    read_page_request,
    reason_of,
    redirect_to,
)
from holdfast.http.problem import Problem

router = APIRouter(include_in_schema=False)

_ENDED_BADLY = ("failed", "dead_letter", "cancelled")
_DOCUMENTS = ("payload", "metadata", "result")

ACTS: dict[str, tuple[str, Doing]] = {
    "cancel": ("cancelled", cancel_or_refuse),
    "retry": ("retried", lambda engine, task_id, reason: engine.run(tasks.retry(task_id, reason))),
    "delete": ("deleted", lambda engine, task_id, reason: engine.run(tasks.delete_task(task_id, reason))),
    "restore": ("restored", lambda engine, task_id, reason: engine.run(tasks.restore_task(task_id, reason))),
}


async def load(visit: PageRequest) -> Mapping[str, Any]:
    return await describe(visit, revealed=False)


async def describe(visit: PageRequest, *, revealed: bool) -> Mapping[str, Any]:
    task_id = _task_id(visit)

    async def look(engine: AsyncEngine) -> dict[str, Any]:
        task = await engine.run(tasks.task_status(task_id))
        if task is None:
            raise Problem(404, f"there is no task {task_id}", hint="Retention may have removed it.")
        return {
            "task": task,
            "why": await engine.run(tasks.explain(task_id)),
            "events": await engine.run(tasks.task_events(task_id)),
            "errors": await engine.run(tasks.task_errors(task_id)),
        }

    found = await visit.site.read(look)
    if not revealed:
        found |= _hidden(**found)
    task = found["task"]
    return found | {
        "documents": {name: getattr(task, name) for name in _DOCUMENTS},
        "revealed": revealed,
        "acts": _possible(task),
        "progress": _share(task.progress),
    }


def _hidden(task: TaskStatus, why: str, events: list[TaskEvent], errors: list[TaskError]) -> dict[str, Any]:
    return {
        "task": hide_task(task),
        "why": hide_why(why, task),
        "events": [hide_event(event) for event in events],
        "errors": [hide_error(error) for error in errors],
    }


page = offer(router, "/tasks/{task_id}", Page("task.html", "/tasks", load))


@router.post("/tasks/{task_id}/reveal")
async def reveal(request: Request, task_id: UUID) -> Response:
    """Shows the values on this answer only: to load the page again hides them."""
    visit = await read_page_request(request)
    reason = reason_of(await read_action_form(visit, "operate"))
    await visit.site.operate(
        visit.caller, lambda engine: engine.run(access.record_reveal(task_id, reason, visit.address))
    )
    return await page.html(visit, **await describe(visit, revealed=True))


@router.post("/tasks/{task_id}/{act}")
async def act_on_task(request: Request, task_id: UUID, act: str) -> Response:
    visit = await read_page_request(request)
    if act not in ACTS:
        raise Problem(404, f"there is nothing at {request.url.path}")
    reason = reason_of(await read_action_form(visit, "operate"))
    done, doing = ACTS[act]
    await visit.site.operate(visit.caller, lambda engine: doing(engine, task_id, reason))
    return redirect_to(visit, f"/tasks/{task_id}", done=done)


def _task_id(visit: PageRequest) -> UUID:
    try:
        return UUID(visit.request.path_params["task_id"])
    except ValueError:
        raise Problem(404, "that is not the id of a task") from None


def _possible(task: Any) -> list[str]:
    if task.deleted_at is not None:
        return ["restore"]
    ended = task.finished_at is not None
    first = ["retry"] if task.status in _ENDED_BADLY else [] if ended else ["cancel"]
    return [*first, "delete"]


def _share(progress: Any) -> dict[str, Any] | None:
    """How far it is, if what the handler said can be read so."""
    if not isinstance(progress, dict):
        return None
    done, total = progress.get("done"), progress.get("total")
    measured = all(isinstance(n, int | float) and not isinstance(n, bool) for n in (done, total))
    note = progress.get("note")
    return {
        "done": done if measured else None,
        "total": total if measured and total else None,
        "note": note if isinstance(note, str) else None,
    }
