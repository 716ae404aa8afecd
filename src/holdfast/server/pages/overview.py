"""The page Overview: what is wrong now, current numbers, charts over time, and rankings of types."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from fastapi import APIRouter

from holdfast._engine import AsyncEngine, activity, health, queues, schedules, tasks, workers
from holdfast._engine.activity import Activity, TypeActivity
from holdfast._engine.task_actions import count_tasks
from holdfast._engine.tasks import EVERY_TASK, TaskFilter
from holdfast._words.units import span
from holdfast.server.hidden_values import hide_line
from holdfast.server.pages.charts import Chart, Series, Window, chart
from holdfast.server.pages.health_links import subject_link
from holdfast.server.pages.page import Page, add_page
from holdfast.server.pages.page_request import PageRequest
from holdfast.server.pages.render import count, rate, wall_time
from holdfast.server.site import read_health

router = APIRouter()

FIVE, QUARTER = timedelta(minutes=5), timedelta(minutes=15)
WINDOWS = {
    one.name: one
    for one in (
        Window("15m", "15 minutes", timedelta(minutes=15), timedelta(seconds=10), FIVE),
        Window("1h", "1 hour", timedelta(hours=1), timedelta(seconds=30), FIVE),
        Window("6h", "6 hours", timedelta(hours=6), timedelta(minutes=3), QUARTER),
        Window("1d", "1 day", timedelta(days=1), timedelta(minutes=15), QUARTER),
    )
}
MAX_FINDINGS = 4
MAX_SCHEDULES = 5
MAX_RANKED = 5
RANKINGS = {"busiest": "Busiest types", "slowest": "Slowest types", "failing": "Types that fail"}


async def load(request: PageRequest) -> Mapping[str, Any]:
    """With a queue or a type in the query: the charts of that one only."""
    window = WINDOWS.get(request.query("window"), WINDOWS["1h"])
    queue, type_ = request.query("queue") or None, request.query("type") or None
    shown = {"window": window.name, "windows": WINDOWS, "queue": queue, "type": type_}
    if queue or type_:
        return shown | await _load_one(request, window, queue, type_)
    return shown | await _load_all(request, window)


async def _load_one(
    request: PageRequest, window: Window, queue: str | None, type_: str | None
) -> dict[str, Any]:
    async def read(engine: AsyncEngine) -> dict[str, Any]:
        of = activity.list_activity_of(queue, type_, window.length, window.activity_step)
        now = await engine.run(health.clock())
        points = await engine.run(of)
        found: dict[str, Any] = {"charts": _charts_of_one(points, window, now)}
        if type_ is None:
            found["ranks"] = await _rank(engine, window, queue)
        return found

    return await request.site.read(read)


async def _load_all(request: PageRequest, window: Window) -> dict[str, Any]:
    async def read(engine: AsyncEngine) -> dict[str, Any]:
        failed = [
            await engine.run(tasks.list_tasks(TaskFilter(status=status), None, 5))
            for status in ("failed", "dead_letter")
        ]
        newest = sorted((one for page in failed for one in page), key=lambda one: one.task_id, reverse=True)
        return {
            "now": await engine.run(health.clock()),
            "samples": await engine.run(activity.list_activity(window.length, window.step)),
            "points": await engine.run(
                activity.list_activity_of(None, None, window.length, window.activity_step)
            ),
            "queues": await engine.run(queues.queue_status()),
            "workers": await engine.run(workers.worker_status()),
            "lines": await read_health(engine),
            "schedules": await engine.run(schedules.schedule_status()),
            "ranks": await _rank(engine, window, None),
            "failed": newest[:5],
            "counts": {count.status: count for count in await engine.run(count_tasks(EVERY_TASK))},
        }

    found = await request.read_shared(f"overview {window.name}", read)
    planned = [one for one in found["schedules"] if one.next_at is not None and one.paused_at is None]
    findings = [line for line in found["lines"] if line.level != "green"]
    return found | {
        "charts": _charts_of_all(found, window),
        "findings": [
            (line if request.shows_values else hide_line(line), subject_link(line))
            for line in findings[:MAX_FINDINGS]
        ],
        "more_findings": len(findings[MAX_FINDINGS:]),
        "failing": [(line, subject_link(line)) for line in findings if line.check_name == "failing_step"][
            :MAX_RANKED
        ],
        "planned": [
            (one, wall_time(one.next_at, one.tz))
            for one in sorted(planned, key=lambda one: one.next_at)[:MAX_SCHEDULES]
        ],
    }


async def _rank(engine: AsyncEngine, window: Window, queue: str | None) -> list[tuple[str, str, Any]]:
    ranked = await engine.run(activity.rank_types(window.length, queue, MAX_RANKED))
    # A front returns as many of each shard.
    return [
        (title, by, [one for one in ranked if one.ranking == by][:MAX_RANKED])
        for by, title in RANKINGS.items()
    ]


def _charts_of_all(found: Mapping[str, Any], window: Window) -> list[Chart]:
    samples: list[Activity] = found["samples"]
    points: list[TypeActivity] = found["points"]
    if not samples and not points:
        return []
    sampled = {"since": window.length, "step": window.step, "now": found["now"]}
    due = float(sum(one.due for one in found["queues"]))
    running = float(sum(one.running for one in found["queues"]))
    throughput: list[Series[Activity]] = [
        Series("finished", lambda point: point.finished_per_second),
        Series("enqueued", lambda point: point.enqueued_per_second),
    ]
    backlog: list[Series[Activity]] = [
        Series("due", lambda point: point.due, due),
        Series("running", lambda point: point.running, running),
    ]
    delay: list[Series[Activity]] = [
        Series("p50", lambda point: point.delay_p50),
        Series("p99", lambda point: point.delay_p99),
    ]
    return [
        chart("Throughput", "per second", samples, throughput, show=rate, **sampled),
        chart("Backlog", "tasks", samples, backlog, show=count, **sampled),
        chart("Delay until start", "seconds", samples, delay, show=span, **sampled),
        *_charts_of_attempts(points, window, found["now"]),
    ]


def _charts_of_one(points: list[TypeActivity], window: Window, now: Any) -> list[Chart]:
    if not points:
        return []
    placed = {"since": window.length, "step": window.activity_step, "now": now}
    throughput: list[Series[TypeActivity]] = [
        Series("succeeded", lambda point: point.succeeded / point.seconds),
        Series("cancelled", lambda point: point.cancelled / point.seconds),
    ]
    backlog: list[Series[TypeActivity]] = [
        Series("due", lambda point: point.due or 0),
        Series("running", lambda point: point.running or 0),
    ]
    delay: list[Series[TypeActivity]] = [Series("mean", lambda point: point.mean_delay)]
    return [
        chart("Throughput", "per second", points, throughput, show=rate, **placed),
        chart("Backlog", "tasks", points, backlog, show=count, **placed),
        chart("Delay until start", "seconds", points, delay, show=span, **placed),
        *_charts_of_attempts(points, window, now),
    ]


def _charts_of_attempts(points: list[TypeActivity], window: Window, now: Any) -> list[Chart]:
    placed = {"since": window.length, "step": window.activity_step, "now": now}
    run: list[Series[TypeActivity]] = [Series("mean", lambda point: point.mean_run)]
    failures: list[Series[TypeActivity]] = [
        Series("retried", lambda point: point.retrying / point.seconds),
        Series("failed for good", lambda point: point.failed / point.seconds),
    ]
    return [
        chart("Run time", "seconds", points, run, show=span, **placed),
        chart("Failed attempts", "per second", points, failures, show=rate, **placed),
    ]


add_page(router, "/", Page("overview.html", "/", load))
