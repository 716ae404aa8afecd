"""The page Tasks: a dense list with counts by status, filters in the URL, a search, and actions on many."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter

from holdfast._engine import AsyncEngine
from holdfast._engine.task_actions import StatusCount, count_tasks
from holdfast._engine.tasks import STATUSES, TaskStatus, tasks_with_ids
from holdfast._serialization.text import visible
from holdfast.errors import InvalidArgument
from holdfast.server.hidden_values import kind_of
from holdfast.server.pages.page import Page, add_page
from holdfast.server.pages.page_request import PageRequest, id_in, number_in
from holdfast.server.pages.task_filters import TaskFilters, read_filters

router = APIRouter()

PER_PAGE = 50
SORTED = 300
"""A list that is sorted by anything but age is that of the newest tasks that match."""
MAX_PREVIEW = 90
MAX_NAMES = 12


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One line of the list."""

    task: TaskStatus
    preview: str
    error: str
    seconds: float | None

    @property
    def short_id(self) -> str:
        """The end of the id, which begins at random for each batch. Searches and commands accept it."""
        return str(self.task.task_id)[-8:]


_SORTS: dict[str, Callable[[TaskRow], Any]] = {
    "status": lambda row: STATUSES.index(row.task.status),
    "type": lambda row: row.task.type,
    "queue": lambda row: row.task.queue,
    "attempt": lambda row: row.task.attempt,
    "duration": lambda row: -1.0 if row.seconds is None else row.seconds,
    "age": lambda row: -row.task.created_at.timestamp(),
}


async def load(request: PageRequest) -> Mapping[str, Any]:
    filters = read_filters(request.query, shows_values=request.shows_values)
    sort = request.query("sort") if request.query("sort").lstrip("-") in _SORTS else "age"
    before = id_in(request.query("before"))
    size = PER_PAGE if sort == "age" else SORTED

    async def read(engine: AsyncEngine) -> tuple[list[TaskStatus], UUID | None, list[StatusCount]]:
        counts = await engine.run(count_tasks(filters.matching))
        found = await request.position.search(engine, filters.matching, before, size)
        return await engine.run(tasks_with_ids(found.task_ids)), found.next, counts

    problem = ""
    try:
        tasks, following, counts = await request.site.search(read)
    except InvalidArgument as error:  # a JSON path that is none
        tasks, following, counts, problem = [], None, [], str(error)
    rows = [task_row(task, shows_values=request.shows_values) for task in tasks]
    if sort != "age":
        rows.sort(key=_SORTS[sort.lstrip("-")], reverse=sort.startswith("-"))
    page_filters = filters.link(sort="" if sort == "age" else sort)
    return {
        "rows": rows[:PER_PAGE],
        "sort": sort,
        "sorted_among": len(rows) if sort != "age" else 0,
        "sort_links": {name: _sort_link(filters, sort, name) for name in _SORTS},
        "searched_since": request.position.searched_since,
        "next_page": filters.link(before=str(following)) if following and sort == "age" else "",
        "filters": filters.given,
        "is_filtered": bool(filters.query),
        "tabs": _tabs(filters, counts, tasks),
        "problem": problem,
        "here": page_filters,
        "refused": number_in(request.query("refused")),
    }


def task_row(task: TaskStatus, *, shows_values: bool) -> TaskRow:
    began = task.started_at
    ended = task.finished_at if began else None
    running = began is not None and task.status == "running"
    seconds = ((ended or datetime.now(UTC)) - began).total_seconds() if began and (ended or running) else None
    error = (task.last_error if shows_values else kind_of(task)) or ""
    return TaskRow(
        task, preview_of(task.payload, shows_values=shows_values), error.partition("\n")[0], seconds
    )


def preview_of(payload: Any, *, shows_values: bool) -> str:
    """The arguments in one line; only their names if values are hidden."""
    if isinstance(payload, dict):
        members = list(payload.items())[:MAX_NAMES]
        if shows_values:
            text = ", ".join(f"{name}={_written(value)}" for name, value in members)
        else:
            text = ", ".join(str(name) for name, _ in members)
    else:
        text = _written(payload) if shows_values else ""
    text = visible(text)
    return text if len(text) <= MAX_PREVIEW else f"{text[:MAX_PREVIEW]}…"


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)[: MAX_PREVIEW * 2]


def _tabs(filters: TaskFilters, counts: list[StatusCount], listed: list[TaskStatus]) -> list[dict[str, Any]]:
    """Counts are of the newest tasks of each status: where the list has found more, it is right."""
    shown = Counter(task.status for task in listed)
    found = {count.status: count for count in counts}
    for status, number in shown.items():
        counted = found.get(status, StatusCount(status, 0, True))
        found[status] = replace(counted, tasks=max(counted.tasks, number))
    counts = list(found.values())
    total, more = sum(count.tasks for count in counts), any(count.more for count in counts)
    tabs = [{"name": "all", "status": "", "tasks": total, "more": more}]
    for status in STATUSES:
        count = found.get(status)
        if (count is not None and (count.tasks or count.more)) or status == filters.given["status"]:
            tabs.append(
                {
                    "name": status.replace("_", " "),
                    "status": status,
                    "tasks": count.tasks if count else 0,
                    "more": bool(count and count.more),
                }
            )
    return [tab | {"link": filters.link(status=str(tab["status"]))} for tab in tabs]


def _sort_link(filters: TaskFilters, sort: str, name: str) -> str:
    """The first click sorts numbers and ages from the largest, names from A."""
    first = f"-{name}" if name in ("attempt", "duration") else name
    other = name if first.startswith("-") else f"-{name}"
    wanted = other if sort == first else first
    return filters.link(sort="" if wanted == "age" else wanted)


add_page(router, "/tasks", Page("tasks.html", "/tasks", load))
