"""/healthz, /readyz and /metrics: for orchestrators and monitoring."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast._engine import AsyncEngine
from holdfast._engine.queues import QueueStatus, queue_status
from holdfast._engine.workers import WorkerStatus, worker_status
from holdfast.server.auth import MayRead
from holdfast.server.openapi import problem, problems
from holdfast.server.site import site_of

router = APIRouter(tags=["probes"])

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Text", "content": {"text/plain": {"schema": {"type": "string"}}}}
}

_QUEUE_GAUGES: tuple[tuple[str, str, Callable[[QueueStatus], int]], ...] = (
    ("holdfast_queue_due", "Tasks that are due.", lambda queue: queue.due),
    ("holdfast_queue_scheduled", "Tasks that are not due yet.", lambda queue: queue.scheduled),
    ("holdfast_queue_running", "Tasks that a worker holds.", lambda queue: queue.running),
    ("holdfast_queue_live_workers", "Live workers that serve the queue.", lambda queue: queue.live_workers),
    ("holdfast_queue_paused", "1 if the queue is paused, else 0.", lambda queue: queue.paused_at is not None),
)


@router.get(
    "/healthz",
    summary="Liveness: the process responds",
    response_class=PlainTextResponse,
    responses={**_TEXT},
)
async def healthz() -> str:
    return "alive\n"


@router.get(
    "/readyz",
    summary="Readiness: the database responds",
    response_class=PlainTextResponse,
    responses={**_TEXT, 503: problem(503)},
)
async def readyz(request: Request) -> str:
    await site_of(request).resources.probe()
    return "ready\n"


@router.get(
    "/metrics", summary="Metrics for Prometheus", response_class=Response, responses={**_TEXT, **problems()}
)
async def metrics(request: Request, caller: MayRead) -> Response:
    del caller
    site = site_of(request)

    async def read(engine: AsyncEngine) -> tuple[list[QueueStatus], list[WorkerStatus]]:
        return await engine.run(queue_status()), await engine.run(worker_status())

    queues, workers = await site.read(read)
    waits = GaugeMetricFamily(
        "holdfast_http_waits", "Requests that wait on this server process.", site.waiting
    )
    registry = CollectorRegistry()
    registry.register(GaugeCollector([*_queue_gauges(queues), *_worker_gauges(workers), waits]))
    return Response(generate_latest(registry), media_type=METRICS_TYPE)


class GaugeCollector(Collector):
    """Gauges whose values are known already."""

    def __init__(self, gauges: list[GaugeMetricFamily]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        return self._gauges


def _queue_gauges(queues: list[QueueStatus]) -> Iterator[GaugeMetricFamily]:
    for name, text, value in _QUEUE_GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=["queue"])
        for queue in queues:
            gauge.add_metric([queue.queue], value(queue))
        yield gauge


def _worker_gauges(workers: list[WorkerStatus]) -> Iterator[GaugeMetricFamily]:
    live = [worker for worker in workers if worker.live]
    silent = len(workers) - len(live)
    in_flight = sum(worker.in_flight for worker in live)
    yield GaugeMetricFamily("holdfast_workers_live", "Workers with a recent heartbeat.", len(live))
    yield GaugeMetricFamily("holdfast_workers_silent", "Workers without a recent heartbeat.", silent)
    yield GaugeMetricFamily("holdfast_tasks_in_flight", "Tasks that live workers hold.", in_flight)
