"""The page of one task: status, timeline, details, payload, errors, and actions."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast._engine import AsyncEngine, access, health, steps, tasks
from holdfast._engine.steps import TimelineEntry
from holdfast._engine.tasks import Explanation, TaskError, TaskEvent, TaskStatus
from holdfast._serialization.text import load_json
from holdfast.server.api.task_actions import ACTIONS
from holdfast.server.hidden_values import hide_entry, hide_error, hide_event, hide_task, hide_why
from holdfast.server.pages.page import Page, add_page
from holdfast.server.pages.page_request import (
    PageRequest,
    id_in,
    no_such_page,
    read_action_form,
    read_page_request,
    redirect_to,
    required_reason,
)
from holdfast.server.pages.render import in_thread
from holdfast.server.pages.task_links import outside_links, related_link
from holdfast.server.pages.waterfall import waterfall
from holdfast.server.problem import Problem

router = APIRouter(include_in_schema=False)

_RETRYABLE = ("failed", "dead_letter", "cancelled")
_LATER = ("scheduled", "retrying", "suspended")
_DOCUMENTS = ("payload", "metadata", "result")
MAX_EVENTS = 100
MAX_ERRORS = 50
MAX_CHARACTERS = 1000  # of the value of a step


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
            "events": await engine.run(tasks.task_events(task_id, MAX_EVENTS, _before(request))),
            "errors": await engine.run(tasks.task_errors(task_id, MAX_ERRORS)),
            "timeline": await engine.run(steps.run_timeline(task_id)),
            "related": await engine.run(steps.related_to(task_id)),
            "now": await engine.run(health.clock()),
            "values": await engine.run(steps.step_values(task_id, MAX_CHARACTERS)) if revealed else [],
        }

    found = await request.site.read(read)
    timeline, related = found.pop("timeline"), found.pop("related")
    outside = outside_links(found["task"], request.site.options)
    shown = timeline if revealed else [hide_entry(entry) for entry in timeline]
    run = await in_thread(waterfall, shown, found.pop("now"), found.pop("values"))
    if not revealed:
        found |= _hidden(**found)
    task = found["task"]
    return found | {
        "run": run,
        "related": [(one, related_link(one, task.namespace)) for one in related],
        "outside": outside,
        "older": tasks.older_than(found["events"]),
        "max_errors": MAX_ERRORS,
        "is_newest": _before(request) is None,
        "waits_for": sorted({_awaited(entry) for entry in timeline if _awaited(entry)}),
        "documents": {name: getattr(task, name) for name in _DOCUMENTS},
        "revealed": revealed,
        "actions": _possible_actions(task),
        "progress": _progress(task.progress),
    }


def _hidden(
    task: TaskStatus, why: Explanation, events: list[TaskEvent], errors: list[TaskError]
) -> dict[str, Any]:
    return {
        "task": hide_task(task),
        "why": hide_why(why),
        "events": [hide_event(event) for event in events],
        "errors": [hide_error(error) for error in errors],
    }


class TaskPage(Page):
    """Also found by the end of the id, as lists show it, or by the key of the task."""

    async def respond(self, request: Request) -> Response:
        given = request.path_params["task_id"]
        if id_in(given) is not None:
            return await super().respond(request)
        page = await read_page_request(request)

        async def read(engine: AsyncEngine) -> list[UUID]:
            found = await engine.run(tasks.find_named(given))
            lines = await engine.run(tasks.task_lines(found.task_ids))
            return [task.task_id for task in lines if tasks.is_named(task, given)]

        named = await page.site.search(read)
        if not named:
            raise Problem(
                404,
                f"no task has the id or the key {given!r}",
                hint="Of an id, eight digits or more are needed.",
            )
        if len(named) > 1:
            return redirect_to(page, "/tasks", search=given)
        return redirect_to(page, f"/tasks/{named[0]}")


task_page = add_page(router, "/tasks/{task_id}", TaskPage("task.html", "/tasks", load))


@router.post("/tasks/{task_id}/reveal")
async def reveal(request: Request, task_id: UUID) -> Response:
    """Shows the values in this response only; reloading the page hides them."""
    page = await read_page_request(request)
    reason = required_reason(await read_action_form(page, "operate"))
    await page.site.operate(page.caller, access.record_reveal(task_id, reason, page.address))
    return await task_page.html(page, **await load_task(page, revealed=True))


@router.post("/tasks/{task_id}/signal")
async def signal_run(request: Request, task_id: UUID) -> Response:
    page = await read_page_request(request)
    form = await read_action_form(page, "operate")
    try:
        payload = load_json(form.get("payload", "").strip() or "null")
    except ValueError as error:
        raise Problem(400, f"the payload is not JSON: {error}") from None
    answer = await page.site.operate(page.caller, steps.signal(task_id, form.get("name", ""), payload))
    return redirect_to(page, f"/tasks/{task_id}", done="signalled", about=answer)


@router.post("/tasks/{task_id}/fork")
async def fork_run(request: Request, task_id: UUID) -> Response:
    """Shows the new run."""
    page = await read_page_request(request)
    form = await read_action_form(page, "operate")
    reason = required_reason(form)
    forked = await page.site.operate(page.caller, steps.fork(task_id, form.get("before") or None, reason))
    return redirect_to(page, f"/tasks/{forked}", done="forked", about=str(task_id))


@router.post("/tasks/{task_id}/wake")
async def wake_now(request: Request, task_id: UUID) -> Response:
    page = await read_page_request(request)
    reason = required_reason(await read_action_form(page, "operate"))
    await page.site.operate(page.caller, tasks.reschedule(task_id, None, reason, delay=timedelta(0)))
    return redirect_to(page, f"/tasks/{task_id}", done="woken")


@router.post("/tasks/{task_id}/{action}")
async def act_on_task(request: Request, task_id: UUID, action: str) -> Response:
    page = await read_page_request(request)
    if action not in ACTIONS:
        raise no_such_page(request)
    reason = required_reason(await read_action_form(page, "operate"))
    chosen = ACTIONS[action]
    await page.site.operate(
        page.caller, lambda engine: chosen.run(engine, task_id, reason), repeatable=chosen.repeatable
    )
    return redirect_to(page, f"/tasks/{task_id}", done=chosen.past)


def _task_id(request: PageRequest) -> UUID:
    return UUID(request.http.path_params["task_id"])


def _before(request: PageRequest) -> datetime | None:
    """Where the shown events end, if not with the newest."""
    given = request.query("before")
    try:
        before = datetime.fromisoformat(given) if given else None
    except ValueError:
        raise Problem(400, f"before is not a time: {given!r}") from None
    return before.astimezone() if before is not None and before.tzinfo is None else before


def _possible_actions(task: TaskStatus) -> list[str]:
    if task.deleted_at is not None:
        return ["restore"]
    ended = task.finished_at is not None
    first = ["retry"] if task.status in _RETRYABLE else [] if ended else ["cancel"]
    later = ["wake"] if task.status in _LATER else []
    return [*later, *first, "delete"]


def _awaited(entry: TimelineEntry) -> str:
    """The signal that a run waits for."""
    awaited = entry.reason if entry.happened == "waits" else None
    return (awaited or "").removeprefix("signal ") if (awaited or "").startswith("signal ") else ""


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
