"""The pages Workers, of one worker, and Health."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fastapi import APIRouter

from holdfast._engine import AsyncEngine, workers
from holdfast._engine.health import HealthLine, clock
from holdfast.server.api.status import read_worker
from holdfast.server.hidden_values import hide_line
from holdfast.server.pages.health_links import subject_act, subject_link
from holdfast.server.pages.page import Page, add_page
from holdfast.server.pages.page_request import PageRequest
from holdfast.server.problem import Problem
from holdfast.server.site import read_health

router = APIRouter(include_in_schema=False)

MAX_HELD = 200
MAX_LOSSES = 10


async def load_workers(request: PageRequest) -> Mapping[str, Any]:
    async def read(engine: AsyncEngine) -> dict[str, Any]:
        return {
            "workers": await engine.run(workers.worker_status()),
            "losses": await engine.run(workers.worker_losses(MAX_LOSSES)),
        }

    found = await request.read_shared("workers", read)
    versions = Counter(one.version or "unknown" for one in found["workers"])
    return found | {
        "versions": versions.most_common(),
        "silent": sum(one.state == "silent" for one in found["workers"]),
    }


async def load_worker(request: PageRequest) -> Mapping[str, Any]:
    worker_id = request.http.query_params.get("id", "")  # may begin or end with spaces
    found = await request.site.read(lambda engine: read_worker(engine, worker_id, MAX_HELD))
    if found is None:
        raise Problem(404, f"there is no worker {worker_id!r}", hint="It has stopped, or was lost.")
    return {"worker": found.worker, "held": found.held, "environment": found.environment, "most": MAX_HELD}


async def load_health(request: PageRequest) -> Mapping[str, Any]:
    async def read(engine: AsyncEngine) -> tuple[list[HealthLine], datetime]:
        return await read_health(engine), await engine.run(clock())

    lines, checked_at = await request.read_shared("health", read)
    shown = lines if request.shows_values else [hide_line(line) for line in lines]
    lines_with_acts = [(line, subject_link(line), subject_act(line)) for line in shown]
    return {"lines": lines_with_acts, "checked_at": checked_at}


add_page(router, "/workers", Page("workers.html", "/workers", load_workers))
add_page(router, "/workers/show", Page("worker.html", "/workers", load_worker))
add_page(router, "/health", Page("health.html", "/health", load_health))
