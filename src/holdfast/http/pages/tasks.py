"""The page Tasks: a list with filters, and a search."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter

from holdfast.engine import AsyncEngine
from holdfast.engine.queues import queue_status
from holdfast.engine.tasks import STATUSES, TaskFilter, TaskStatus, list_tasks, search_tasks
from holdfast.http.pages.page import Page, add_page
from holdfast.http.pages.page_request import PageRequest

router = APIRouter()

PER_PAGE = 50


async def load(request: PageRequest) -> Mapping[str, Any]:
    given = {
        name: request.query(name)[:500].replace("\0", "") for name in ("search", "status", "queue", "type")
    }
    status = given["status"] if given["status"] in STATUSES else None
    before = _uuid(request.query("before"))

    async def read(engine: AsyncEngine) -> tuple[list[TaskStatus], list[str]]:
        queues = [queue.queue for queue in await engine.run(queue_status())]
        if given["search"]:
            found = await engine.run(search_tasks(given["search"], PER_PAGE + 1))
            return [task for task in found if status in (None, task.status)], queues
        matching = TaskFilter(status, given["queue"] or None, given["type"] or None)
        return await engine.run(list_tasks(matching, before, PER_PAGE + 1)), queues

    tasks, queues = await request.site.read(read)
    page, more = tasks[:PER_PAGE], len(tasks) > PER_PAGE and not given["search"]
    filters = {name: value for name, value in given.items() if value}
    next_page = urlencode(filters | {"before": str(page[-1].task_id)}) if more else ""
    return {"tasks": page, "next_page": next_page, "filters": given, "queues": queues, "statuses": STATUSES}


def _uuid(given: str) -> UUID | None:
    try:
        return UUID(given)
    except ValueError:
        return None


add_page(router, "/tasks", Page("tasks.html", "/tasks", load))
