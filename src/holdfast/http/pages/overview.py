"""The page Overview: current numbers, charts over time, and the newest failures."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from fastapi import APIRouter

from holdfast.engine import AsyncEngine, activity, queues, tasks, workers
from holdfast.engine.activity import Activity
from holdfast.engine.tasks import TaskFilter
from holdfast.http.pages.charts import Chart, chart
from holdfast.http.pages.page import Page, add_page
from holdfast.http.pages.page_request import PageRequest
from holdfast.http.pages.render import count, rate, span

router = APIRouter()

# Name, length of the window, and step.
WINDOWS = {
    "15m": ("15 minutes", timedelta(minutes=15), timedelta(seconds=10)),
    "1h": ("1 hour", timedelta(hours=1), timedelta(seconds=30)),
    "6h": ("6 hours", timedelta(hours=6), timedelta(minutes=3)),
    "1d": ("1 day", timedelta(days=1), timedelta(minutes=15)),
}


async def load(request: PageRequest) -> Mapping[str, Any]:
    chosen = request.query("window") if request.query("window") in WINDOWS else "15m"
    _, since, step = WINDOWS[chosen]

    async def read(engine: AsyncEngine) -> dict[str, Any]:
        failed = [
            await engine.run(tasks.list_tasks(TaskFilter(status=status), None, 5))
            for status in ("failed", "dead_letter")
        ]
        newest = sorted(
            (task for page in failed for task in page), key=lambda task: task.task_id, reverse=True
        )
        return {
            "points": await engine.run(activity.list_activity(since, step)),
            "queues": await engine.run(queues.queue_status()),
            "workers": await engine.run(workers.worker_status()),
            "failed": newest[:5],
        }

    found = await request.site.read(read)
    return found | {
        "charts": _charts(found["points"]),
        "window": chosen,
        "windows": {name: words for name, (words, _, _) in WINDOWS.items()},
    }


def _charts(points: list[Activity]) -> list[tuple[str, str, Chart, Callable[[float], str]]]:
    if not points:
        return []
    throughput = chart(
        points,
        ("finished", lambda point: point.finished_per_second),
        ("enqueued", lambda point: point.enqueued_per_second),
    )
    delay = chart(points, ("p50", lambda point: point.delay_p50), ("p99", lambda point: point.delay_p99))
    errors = chart(points, ("errors", lambda point: point.errors_per_second))
    backlog = chart(points, ("due", lambda point: point.due), ("running", lambda point: point.running))
    return [
        ("Throughput", "per second", throughput, rate),
        ("Delay until claimed", "", delay, span),
        ("Failed attempts", "per second", errors, rate),
        ("Backlog", "tasks", backlog, count),
    ]


add_page(router, "/", Page("overview.html", "/", load))
