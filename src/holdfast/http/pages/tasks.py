"""The page Tasks: a list with filters, and a search."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter

from holdfast.engine import AsyncEngine
from holdfast.engine.queues import queue_status
from holdfast.engine.tasks import STATUSES, TaskFilter, TaskStatus, find_tasks, search_tasks, tasks_with_ids
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

    async def read(engine: AsyncEngine) -> tuple[list[TaskStatus], UUID | None, list[str]]:
        queues = [queue.queue for queue in await engine.run(queue_status())]
        if given["search"]:
            matches = await engine.run(search_tasks(given["search"], PER_PAGE))
            return [task for task in matches if status in (None, task.status)], None, queues
        matching = TaskFilter(status, given["queue"] or None, given["type"] or None)
        found = await engine.run(find_tasks(matching, before, PER_PAGE))
        return await engine.run(tasks_with_ids(found.task_ids)), found.next, queues

    page, following, queues = await request.site.read(read)
    filters = {name: value for name, value in given.items() if value}
    next_page = urlencode(filters | {"before": str(following)}) if following else ""
    return {"tasks": page, "next_page": next_page, "filters": given, "queues": queues, "statuses": STATUSES}


def _uuid(given: str) -> UUID | None:
    try:
        return UUID(given)
    except ValueError:
        return None


add_page(router, "/tasks", Page("tasks.html", "/tasks", load))
