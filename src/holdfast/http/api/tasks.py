"""GET /v1/tasks and what belongs to one task."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request

from holdfast.engine import AsyncEngine, Statement, access, tasks
from holdfast.engine.tasks import Status, TaskFilter, TaskStatus
from holdfast.errors import TaskNotFound
from holdfast.http.access import Caller
from holdfast.http.api import schemas
from holdfast.http.api.openapi_parts import problems
from holdfast.http.auth import MayRead, permitted
from holdfast.http.hidden_values import hide_error, hide_event, hide_task, hide_why
from holdfast.http.security import foreign_origin
from holdfast.http.site import site_of

T = TypeVar("T")

router = APIRouter(tags=["tasks"])

MAX_PER_PAGE = 200
TEXT = r"^[^\x00]*$"

Reveal = Annotated[bool, Query(description="Show hidden values: needs operate, and is recorded.")]
Reason = Annotated[str | None, Query(max_length=2000, pattern=TEXT, description="Why they are to be shown.")]
Limit = Annotated[int, Query(ge=1, le=MAX_PER_PAGE, description="Tasks per page.")]


@router.get("/tasks", response_model=schemas.TaskPage, summary="List tasks", responses=problems(422))
async def list_tasks(
    request: Request,
    caller: MayRead,
    *,
    status: Annotated[Status | None, Query(description="Only those of this status.")] = None,
    queue: Annotated[
        str | None, Query(max_length=200, pattern=TEXT, description="Only those of this queue.")
    ] = None,
    type: Annotated[  # noqa: A002 - the word that everything else uses for it
        str | None, Query(max_length=200, pattern=TEXT, description="Only types that begin so.")
    ] = None,
    since: Annotated[datetime | None, Query(description="Only those created since then.")] = None,
    before: Annotated[UUID | None, Query(description="Where the page before ended.")] = None,
    limit: Limit = 50,
) -> schemas.TaskPage:
    """Newest first. `next` of the answer is the address of the next page."""
    del caller
    if since is not None and since.tzinfo is None:
        since = since.astimezone()
    matching = TaskFilter(status, queue, type, since)
    found = await site_of(request).read(
        lambda engine: engine.run(tasks.list_tasks(matching, before, limit + 1))
    )
    page, more = found[:limit], len(found) > limit
    return schemas.TaskPage(
        tasks=[summary_of(task) for task in page],
        next=_next(request, page[-1].task_id) if more else None,
    )


@router.get(
    "/tasks/{task_id}", response_model=schemas.TaskDetail, summary="Show a task", responses=problems(404)
)
async def show_task(
    request: Request,
    task_id: UUID,
    caller: MayRead,
    reveal: Reveal = False,
    reason: Reason = None,
) -> schemas.TaskDetail:
    if reveal:
        await _record(request, task_id, caller, reason)
    task, why = await site_of(request).read(lambda engine: _described(engine, task_id))
    return detail_of(task, why, hidden=not reveal)


@router.get(
    "/tasks/{task_id}/events",
    response_model=schemas.Events,
    summary="The life of a task",
    responses=problems(404),
)
async def task_events(request: Request, task_id: UUID, caller: MayRead) -> schemas.Events:
    """Why an attempt went wrong is hidden here: see its errors."""
    del caller
    found = await site_of(request).read(lambda engine: _of_known(engine, task_id, tasks.task_events(task_id)))
    return schemas.Events.model_validate({"events": [asdict(hide_event(event)) for event in found]})


@router.get(
    "/tasks/{task_id}/errors",
    response_model=schemas.Errors,
    summary="The errors of a task",
    responses=problems(404),
)
async def task_errors(
    request: Request, task_id: UUID, caller: MayRead, reveal: Reveal = False, reason: Reason = None
) -> schemas.Errors:
    if reveal:
        await _record(request, task_id, caller, reason)
    found = await site_of(request).read(lambda engine: _of_known(engine, task_id, tasks.task_errors(task_id)))
    shown = found if reveal else [hide_error(error) for error in found]
    return schemas.Errors.model_validate({"errors": [asdict(error) for error in shown]})


def summary_of(task: TaskStatus) -> schemas.TaskSummary:
    return schemas.TaskSummary.model_validate(asdict(hide_task(task)))


def detail_of(task: TaskStatus, why: str, *, hidden: bool) -> schemas.TaskDetail:
    if hidden:
        task, why = hide_task(task), hide_why(why, task)
    return schemas.TaskDetail.model_validate(asdict(task) | {"why": why, "values_hidden": hidden})


def not_found(task_id: UUID) -> TaskNotFound:
    return TaskNotFound(f"there is no task {task_id}", sqlstate="QF404")


async def _record(request: Request, task_id: UUID, caller: Caller, reason: str | None) -> None:
    """A page of another site must not make it look as if somebody had looked."""
    permitted(caller, "operate")
    foreign = foreign_origin(request.headers)
    if foreign is not None:
        raise foreign
    address = request.client.host if request.client else None
    await site_of(request).operate(
        caller, lambda engine: engine.run(access.record_reveal(task_id, reason, address))
    )


async def _described(engine: AsyncEngine, task_id: UUID) -> tuple[TaskStatus, str]:
    task = await engine.run(tasks.task_status(task_id))
    if task is None:
        raise not_found(task_id)
    return task, await engine.run(tasks.explain(task_id))


async def _of_known(engine: AsyncEngine, task_id: UUID, rows: Statement[list[T]]) -> list[T]:
    found = await engine.run(rows)
    if not found and await engine.run(tasks.task_status(task_id)) is None:
        raise not_found(task_id)
    return found


def _next(request: Request, before: UUID) -> str:
    given = [(name, value) for name, value in request.query_params.multi_items() if name != "before"]
    path = request.scope.get("root_path", "") + str(request.app.url_path_for("list_tasks"))
    return f"{path}?{urlencode([*given, ('before', str(before))])}"
