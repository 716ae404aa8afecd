"""Actions on selected tasks or on all that match: a preview with a count, one reason, bounded steps."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from holdfast._engine.task_actions import ACTIONS, MAX_ACTED, PAST, ActedTask, Action
from holdfast.server.bulk_steps import BulkRequest, count_matching, take_step
from holdfast.server.pages.page import common_context
from holdfast.server.pages.page_request import (
    PageRequest,
    number_in,
    read_action_form,
    read_page_request,
    required_reason,
)
from holdfast.server.pages.render import environment
from holdfast.server.pages.task_filters import TaskFilters, parse_future, read_filters
from holdfast.server.problem import Problem

router = APIRouter(include_in_schema=False)

STEPS_PER_REQUEST = 12
MAX_SHOWN = 20
_CHOSEN = "task-"


@router.post("/tasks/act")
async def act_on_many(request: Request) -> Response:
    """First a preview; with a reason, some steps. The page continues by itself until nothing is left."""
    page = await read_page_request(request)
    form = await read_action_form(page, "operate")
    filters = read_filters(lambda name: form.get(name, ""), shows_values=page.shows_values)
    wanted = _request(form, filters)
    if "confirmed" not in form:
        count, more = await count_matching(page.site, page.caller, wanted)
        return _render(page, form, filters, wanted, count=count, more=more)
    wanted = BulkRequest(
        wanted.action, wanted.matching, wanted.task_ids, required_reason(form), wanted.run_at
    )
    return await _run(page, form, filters, wanted)


async def _run(
    page: PageRequest, form: dict[str, str], filters: TaskFilters, wanted: BulkRequest
) -> Response:
    """Each step is a transaction of its own."""
    changed, refused = number_in(form.get("changed", "")), number_in(form.get("refused", ""))
    cursor: str | None = form.get("cursor") or None
    problems: list[ActedTask] = []
    for _ in range(STEPS_PER_REQUEST):
        step = await take_step(page.site, page.caller, wanted, cursor)
        problems += [one for one in step.acted if not one.changed and "deleted" not in (one.problem or "")]
        changed, cursor = changed + step.changed, step.next
        if cursor is None:
            break
    refused += len(problems)
    if cursor is None and not problems:
        query = filters.query | {"done": PAST[wanted.action], "about": str(changed)}
        if refused:
            query["refused"] = str(refused)
        return RedirectResponse(f"{page.root}/tasks?{urlencode(query)}", 303)
    return _render(
        page, form, filters, wanted, changed=changed, refused=refused, cursor=cursor, problems=problems
    )


def _render(
    page: PageRequest, form: Mapping[str, str], filters: TaskFilters, wanted: BulkRequest, **more: Any
) -> Response:
    context = common_context(page, "/tasks") | {
        "action": wanted.action,
        "past": PAST[wanted.action],
        "filters": filters.query,
        "back": filters.link(),
        "chosen": [str(task_id) for task_id in wanted.task_ids],
        "reason": form.get("reason", ""),
        "at": form.get("at", ""),
        "count": number_in(form.get("count", "")),
        "more": False,
        "changed": 0,
        "refused": 0,
        "cursor": None,
        "problems": None,
        "MAX_SHOWN": MAX_SHOWN,
    }
    return HTMLResponse(environment.get_template("bulk.html").render(context | more))


def _request(form: Mapping[str, str], filters: TaskFilters) -> BulkRequest:
    action = _action(form)
    task_ids = _chosen(form) if form.get("scope") != "all" else []
    if form.get("scope") != "all" and not task_ids:
        raise Problem(
            400, "no tasks are selected", hint="Tick some tasks, or choose “all that match”, and try again."
        )
    return BulkRequest(action, filters.matching, task_ids, None, _run_at(action, form))


def _action(form: Mapping[str, str]) -> Action:
    for action in ACTIONS:
        if form.get("action") == action:
            return action
    raise Problem(400, "choose an action")


def _run_at(action: Action, form: Mapping[str, str]) -> datetime | None:
    if action != "reschedule":
        return None
    given = form.get("at", "").strip() or "0s"
    found = parse_future(given)
    if found is None:
        raise Problem(400, f"{given!r} is neither a time such as 2030-01-31T08:00Z nor a duration such as 2h")
    return found


def _chosen(form: Mapping[str, str]) -> list[UUID]:
    try:
        chosen = [UUID(name.removeprefix(_CHOSEN)) for name in form if name.startswith(_CHOSEN)]
    except ValueError:
        raise Problem(400, "the form names a task that is not an id") from None
    if len(chosen) > MAX_ACTED:
        raise Problem(400, f"at most {MAX_ACTED} tasks can be selected one by one")
    return chosen
