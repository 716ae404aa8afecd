"""The page Runs: suspended runs and what they wait for, and those with a failing step."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter

from holdfast._engine import AsyncEngine, steps
from holdfast._engine.steps import WaitingRun
from holdfast._engine.tasks import FailedTry, TaskFilter, last_tries
from holdfast.server.pages.page import Page, add_page
from holdfast.server.pages.page_request import PageRequest, id_in

router = APIRouter(include_in_schema=False)

MAX_RUNS = 200
Found = tuple[list[WaitingRun], list[FailedTry], UUID | None]


async def load(request: PageRequest) -> Mapping[str, Any]:
    filters = {name: request.query(name) for name in ("queue", "type") if request.query(name)}
    matching = TaskFilter(status="suspended", queue=filters.get("queue"), type_prefix=filters.get("type"))
    before = id_in(request.query("before"))

    async def read(engine: AsyncEngine) -> Found:
        found = await request.position.search(engine, matching, before, MAX_RUNS)
        waits = await engine.run(steps.waits_of_runs(found.task_ids))
        return waits, await engine.run(last_tries(found.task_ids)), found.next

    waits, tries, following = await request.site.search(read)
    failed = {(one.task_id, one.step): one for one in tries}
    return {
        "runs": [(one, failed.get((one.task_id, one.name))) for one in waits],
        "next_page": "" if following is None else f"?{urlencode(filters | {'before': str(following)})}",
        "searched_since": request.position.searched_since,
        "queue": filters.get("queue", ""),
        "type": filters.get("type", ""),
    }


add_page(router, "/runs", Page("runs.html", "/runs", load))
