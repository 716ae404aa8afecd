"""The page of one task: status, timeline, details, payload, errors, and actions."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast.engine import AsyncEngine, access, tasks
from holdfast.engine.tasks import TaskError, TaskEvent, TaskStatus
from holdfast.http.api.task_actions import ACTIONS
from holdfast.http.hidden_values import hide_error, hide_event, hide_task, hide_why
from holdfast.http.pages.page import Page, add_page
from holdfast.http.pages.page_request import (
    PageRequest,
    no_such_page,
    read_action_form,
    read_page_request,
    redirect_to,
    required_reason,
)
from holdfast.http.problem import Problem

router = APIRouter(include_in_schema=False)

_RETRYABLE = ("failed", "dead_letter", "cancelled")
_DOCUMENTS = ("payload", "metadata", "result")


async def load(request: PageRequest) -> Mapping[str, Any]:
    return await load_task(request, revealed=request.shows_values)


async def load_task(request: PageRequest, *, revealed: bool) -> Mapping[str, Any]:
    task_id = _task_id(request)

    async def read(engine: AsyncEngine) -> dict[str, Any]:
        task = await engine.run(tasks.task_status(task_id))
        if task is None:
            raise Problem(404, f"there is no task {task_id}", hint="Retention may have removed it.")
        return {
            "task": task,
            "why": await engine.run(tasks.explain(task_id)),
            "events": await engine.run(tasks.task_events(task_id)),
            "errors": await engine.run(tasks.task_errors(task_id)),
        }

    found = await request.site.read(read)
    if not revealed:
        found |= _hidden(**found)
    task = found["task"]
    return found | {
        "documents": {name: getattr(task, name) for name in _DOCUMENTS},
        "revealed": revealed,
        "actions": _possible_actions(task),
        "progress": _progress(task.progress),
    }


def _hidden(task: TaskStatus, why: str, events: list[TaskEvent], errors: list[TaskError]) -> dict[str, Any]:
    return {
        "task": hide_task(task),
        "why": hide_why(why, task),
        "events": [hide_event(event) for event in events],
        "errors": [hide_error(error) for error in errors],
    }


task_page = add_page(router, "/tasks/{task_id}", Page("task.html", "/tasks", load))


@router.post("/tasks/{task_id}/reveal")
async def reveal(request: Request, task_id: UUID) -> Response:
    """Shows the values in this response only; reloading the page hides them."""
    page = await read_page_request(request)
    reason = required_reason(await read_action_form(page, "operate"))
    await page.site.operate(page.caller, access.record_reveal(task_id, reason, page.address))
    return await task_page.html(page, **await load_task(page, revealed=True))


@router.post("/tasks/{task_id}/{action}")
async def act_on_task(request: Request, task_id: UUID, action: str) -> Response:
    page = await read_page_request(request)
    if action not in ACTIONS:
        raise no_such_page(request)
    reason = required_reason(await read_action_form(page, "operate"))
    chosen = ACTIONS[action]
    await page.site.operate(page.caller, lambda engine: chosen.run(engine, task_id, reason))
    return redirect_to(page, f"/tasks/{task_id}", done=chosen.past)


def _task_id(request: PageRequest) -> UUID:
    given = request.http.path_params["task_id"]
    try:
        return UUID(given)
    except ValueError:
        raise Problem(404, f"{given!r} is not a task id") from None


def _possible_actions(task: TaskStatus) -> list[str]:
    if task.deleted_at is not None:
        return ["restore"]
    ended = task.finished_at is not None
    first = ["retry"] if task.status in _RETRYABLE else [] if ended else ["cancel"]
    return [*first, "delete"]


def _progress(progress: Any) -> dict[str, Any] | None:
    """done, total and note, where the handler reported progress in that form."""
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
