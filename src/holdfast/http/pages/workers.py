"""The pages Workers, of one worker, and Health."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from holdfast.engine import AsyncEngine, tasks, workers
from holdfast.engine.tasks import TaskFilter
from holdfast.http.hidden_values import hide_line
from holdfast.http.pages.health_links import subject_link
from holdfast.http.pages.page import Page, add_page
from holdfast.http.pages.page_request import PageRequest
from holdfast.http.problem import Problem

router = APIRouter(include_in_schema=False)

MAX_HELD = 1000
"""Running and claimed tasks that are looked at for those of one worker."""


async def load_workers(request: PageRequest) -> Mapping[str, Any]:
    return {"workers": await request.site.read(workers.worker_status())}


async def load_worker(request: PageRequest) -> Mapping[str, Any]:
    worker_id = request.query("id")

    async def read(engine: AsyncEngine) -> dict[str, Any]:
        known = await engine.run(workers.worker_status())
        worker = next((one for one in known if one.worker_id == worker_id), None)
        if worker is None:
            raise Problem(404, f"there is no worker {worker_id!r}", hint="It has stopped, or was lost.")
        pages = [
            await engine.run(tasks.list_tasks(TaskFilter(status=status), None, MAX_HELD))
            for status in ("running", "claimed")
        ]
        recorded = await engine.run(workers.provenance([worker_id]))
        return {
            "worker": worker,
            "held": [task for page in pages for task in page if task.worker_id == worker_id],
            "environment": recorded[-1].environment if recorded else None,
        }

    return await request.site.read(read)


async def load_health(request: PageRequest) -> Mapping[str, Any]:
    lines = await request.site.health()
    shown = lines if request.shows_values else [hide_line(line) for line in lines]
    return {"lines": [(line, subject_link(line)) for line in shown]}


add_page(router, "/workers", Page("workers.html", "/workers", load_workers))
add_page(router, "/workers/show", Page("worker.html", "/workers", load_worker))
add_page(router, "/health", Page("health.html", "/health", load_health))
