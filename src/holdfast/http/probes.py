"""/healthz, /readyz and /metrics: for orchestrators and monitoring."""

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from holdfast.engine import AsyncEngine
from holdfast.engine.queues import QueueStatus, queue_status
from holdfast.engine.workers import WorkerStatus, worker_status
from holdfast.http.auth import MayRead
from holdfast.http.openapi import problem, problems
from holdfast.http.site import site_of

router = APIRouter(tags=["probes"])

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Text", "content": {"text/plain": {"schema": {"type": "string"}}}}
}

_QUEUE_GAUGES = (
    ("holdfast_queue_due", "Tasks that are due.", "due"),
    ("holdfast_queue_scheduled", "Tasks that are not due yet.", "scheduled"),
    ("holdfast_queue_running", "Tasks that a worker holds.", "running"),
    ("holdfast_queue_live_workers", "Live workers that serve the queue.", "live_workers"),
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
    lines = [*_queue_lines(queues), *_worker_lines(workers)]
    lines += _family(
        "holdfast_http_waits", "Requests that wait on this server process.", [("", site.waiting)]
    )
    return Response("\n".join([*lines, ""]), media_type=METRICS_TYPE)


def _queue_lines(queues: list[QueueStatus]) -> Iterator[str]:
    for name, text, attribute in _QUEUE_GAUGES:
        yield from _family(name, text, [(_label("queue", q.queue), getattr(q, attribute)) for q in queues])
    paused = [(_label("queue", q.queue), int(q.paused_at is not None)) for q in queues]
    yield from _family("holdfast_queue_paused", "1 if the queue is paused, else 0.", paused)


def _worker_lines(workers: list[WorkerStatus]) -> Iterator[str]:
    live = [worker for worker in workers if worker.live]
    yield from _family("holdfast_workers_live", "Workers with a recent heartbeat.", [("", len(live))])
    silent = len(workers) - len(live)
    yield from _family("holdfast_workers_silent", "Workers without a recent heartbeat.", [("", silent)])
    in_flight = sum(worker.in_flight for worker in live)
    yield from _family("holdfast_tasks_in_flight", "Tasks that live workers hold.", [("", in_flight)])


def _family(name: str, text: str, values: list[tuple[str, int]]) -> list[str]:
    return [
        f"# HELP {name} {text}",
        f"# TYPE {name} gauge",
        *(f"{name}{label} {value}" for label, value in values),
    ]


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{{{name}="{escaped}"}}'
