"""Tasks: list, show, and the events and errors of one task."""

from datetime import datetime
from typing import Annotated, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request

from holdfast._engine import AsyncEngine, Statement, access, tasks
from holdfast._engine.shards import name_of_shard
from holdfast._engine.tasks import (
    MAX_EVENTS,
    Explanation,
    Status,
    TaskError,
    TaskEvent,
    TaskFilter,
    TaskSearch,
    TaskStatus,
)
from holdfast.errors import NotFound
from holdfast.server.access import Caller
from holdfast.server.auth import MayRead, require_scope
from holdfast.server.hidden_values import hide_error, hide_event, hide_task, hide_why, values_hidden
from holdfast.server.openapi import problems
from holdfast.server.schemas import ResponseModel, TaskDetail, TaskPage, TaskSummary
from holdfast.server.searches import MAX_SEARCH_SECONDS
from holdfast.server.security import check_origin
from holdfast.server.site import site_of

T = TypeVar("T")

router = APIRouter(tags=["tasks"])

MAX_PER_PAGE = 200
TEXT = r"^[^\x00]*$"
GROUP = r"^[0-9a-f]{32}$"

Reveal = Annotated[bool, Query(description="Show hidden values. Needs the scope operate, and is recorded.")]
Reason = Annotated[str | None, Query(max_length=2000, pattern=TEXT, description="Required with `reveal`.")]
Limit = Annotated[int, Query(ge=1, le=MAX_PER_PAGE, description="Tasks per page.")]
MaxEvents = Annotated[int, Query(ge=1, le=MAX_EVENTS, description="Events per page.")]
Before = Annotated[datetime | None, Query(description="Events before this time.")]


class TaskEvents(ResponseModel):
    """Oldest first. `next` is the URL of the page with those before them."""

    events: list[TaskEvent]
    next: str | None


class TaskErrors(ResponseModel):
    """Oldest first."""

    errors: list[TaskError]


@router.get("/tasks", summary="List tasks", responses=problems(422))
async def list_tasks(
    request: Request,
    caller: MayRead,
    *,
    status: Annotated[Status | None, Query(description="Tasks with this status.")] = None,
    queue: Annotated[
        str | None, Query(max_length=200, pattern=TEXT, description="Tasks of this queue.")
    ] = None,
    type: Annotated[  # noqa: A002 - the name of the query parameter
        str | None, Query(max_length=200, pattern=TEXT, description="Types that begin with this.")
    ] = None,
    since: Annotated[datetime | None, Query(description="Tasks created at or after this time.")] = None,
    search: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=500,
            pattern=TEXT,
            description="Text in the id, type or keys, or in error messages where values are shown.",
        ),
    ] = None,
    error: Annotated[
        str | None, Query(pattern=GROUP, description="Tasks whose last error is of this group.")
    ] = None,
    where: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=500,
            pattern=TEXT,
            description="A JSON path that finds something in the payload; only where values are shown.",
            examples=["$.invoice ? (@ == 7)"],
        ),
    ] = None,
    before: Annotated[UUID | None, Query(description="The last task of the previous page.")] = None,
    limit: Limit = 50,
) -> TaskPage:
    """Newest first. `next` is the URL of the next page. A page may be short although others follow."""
    if since is not None and since.tzinfo is None:
        since = since.astimezone()
    shown = site_of(request).options.shows_values
    if where is not None and not shown:
        raise values_hidden()
    matching = TaskFilter(status, queue, type, since, None, search, error, where, search_errors=shown)
    del caller
    page, following = await site_of(request).search(lambda engine: _page(engine, matching, before, limit))
    shards = await site_of(request).shard_names()
    return TaskPage(
        tasks=[_summary(task, shards) for task in page],
        next=None if following is None else _next_page(request, str(following)),
    )


@router.get("/tasks/{task_id}", summary="Show a task", responses=problems(404))
async def show_task(
    request: Request,
    task_id: UUID,
    caller: MayRead,
    reveal: Reveal = False,
    reason: Reason = None,
) -> TaskDetail:
    reveal = await _reveals(request, task_id, caller, reason, reveal)
    task, why = await site_of(request).read(lambda engine: _explained(engine, task_id))
    if not reveal:
        task, why = hide_task(task), hide_why(why)
    shard = name_of_shard(task_id, await site_of(request).shard_names())
    return TaskDetail.of(task, why, shard, values_hidden=not reveal)


@router.get("/tasks/{task_id}/events", summary="List the events of a task", responses=problems(404))
async def task_events(
    request: Request, task_id: UUID, caller: MayRead, before: Before = None, limit: MaxEvents = MAX_EVENTS
) -> TaskEvents:
    """The last ones, in order. The messages of errors are hidden here: see the errors of the task."""
    del caller
    if before is not None and before.tzinfo is None:
        before = before.astimezone()
    wanted = tasks.task_events(task_id, limit, before)
    found = await site_of(request).read(lambda engine: _of_existing(engine, task_id, wanted))
    older = tasks.older_than(found)
    shown = site_of(request).options.shows_values
    return TaskEvents(
        events=found if shown else [hide_event(event) for event in found],
        next=None if older is None else _next_page(request, older.isoformat()),
    )


@router.get("/tasks/{task_id}/errors", summary="List the errors of a task", responses=problems(404))
async def task_errors(
    request: Request, task_id: UUID, caller: MayRead, reveal: Reveal = False, reason: Reason = None
) -> TaskErrors:
    reveal = await _reveals(request, task_id, caller, reason, reveal)
    wanted = tasks.task_errors(task_id)
    found = await site_of(request).read(lambda engine: _of_existing(engine, task_id, wanted))
    return TaskErrors(errors=found if reveal else [hide_error(error) for error in found])


async def _reveals(request: Request, task_id: UUID, caller: Caller, reason: str | None, wanted: bool) -> bool:
    """Whether to show values: always if this server does, else on request, which is recorded.

    Refuses other origins: a foreign page must not create records in the caller's name.
    """
    if site_of(request).options.shows_values or not wanted:
        return site_of(request).options.shows_values
    require_scope(caller, "operate")
    problem = check_origin(request.headers)
    if problem is not None:
        raise problem
    address = request.client.host if request.client else None
    await site_of(request).operate(caller, access.record_reveal(task_id, reason, address))
    return True


async def _explained(engine: AsyncEngine, task_id: UUID) -> tuple[TaskStatus, Explanation]:
    task = await engine.run(tasks.task_status(task_id))
    if task is None:
        raise _not_found(task_id)
    return task, await engine.run(tasks.explain(task_id))


async def _of_existing(engine: AsyncEngine, task_id: UUID, wanted: Statement[list[T]]) -> list[T]:
    found = await engine.run(wanted)
    if not found and await engine.run(tasks.task_status(task_id)) is None:
        raise _not_found(task_id)
    return found


def _not_found(task_id: UUID) -> NotFound:
    return NotFound(f"there is no task {task_id}", sqlstate="QF404")


async def _page(
    engine: AsyncEngine, matching: TaskFilter, before: UUID | None, limit: int
) -> tuple[list[TaskStatus], UUID | None]:
    found = await TaskSearch(matching, before, limit, MAX_SEARCH_SECONDS).run_async(engine)
    return await engine.run(tasks.tasks_with_ids(found.task_ids)), found.next


def _summary(task: TaskStatus, shards: list[str]) -> TaskSummary:
    summary = TaskSummary.model_validate(hide_task(task))
    summary.shard = name_of_shard(task.task_id, shards)
    return summary


def _next_page(request: Request, before: str) -> str:
    given = [(name, value) for name, value in request.query_params.multi_items() if name != "before"]
    route = request.app.url_path_for(request.scope["route"].name, **request.path_params)
    path = request.scope.get("root_path", "") + str(route)
    return f"{path}?{urlencode([*given, ('before', before)])}"
