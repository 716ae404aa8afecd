"""The pages Workers and Health."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from holdfast.engine import AsyncEngine, health, tasks, workers
from holdfast.engine.tasks import TaskFilter
from holdfast.http.hidden_values import hide_line
from holdfast.http.pages.health_links import subject_link
from holdfast.http.pages.page import Page, add_page
from holdfast.http.pages.page_request import PageRequest

router = APIRouter(include_in_schema=False)

MAX_HELD = 200


async def load_workers(request: PageRequest) -> Mapping[str, Any]:
    async def read(engine: AsyncEngine) -> dict[str, Any]:
        pages = [
            await engine.run(tasks.list_tasks(TaskFilter(status=status), None, MAX_HELD))
            for status in ("running", "claimed")
        ]
        return {
            "workers": await engine.run(workers.worker_status()),
            "tasks": [task for page in pages for task in page],
        }

    found = await request.site.read(read)
    held: dict[str, list[Any]] = {}
    for task in found["tasks"]:
        held.setdefault(task.worker_id or "", []).append(task)
    return {"workers": found["workers"], "held": held}


async def load_health(request: PageRequest) -> Mapping[str, Any]:
    lines = await request.site.read(health.health())
    shown = lines if request.shows_values else [hide_line(line) for line in lines]
    return {"lines": [(line, subject_link(line)) for line in shown]}


add_page(router, "/workers", Page("workers.html", "/workers", load_workers))
add_page(router, "/health", Page("health.html", "/health", load_health))
