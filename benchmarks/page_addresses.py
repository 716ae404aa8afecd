"""The addresses of every page and GET route: from the router, with examples where an address has parameters.

A route without parameters is requested as it is, so that a new page needs no change here. A route with
parameters needs an example: without one, the benchmark and the tests of plans fail and name it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import psycopg
from fastapi import FastAPI

from holdfast.server.pages.page import Page

STATUSES = (
    *("scheduled", "suspended", "pending", "retrying", "claimed", "running"),
    *("succeeded", "failed", "dead_letter", "cancelled"),
)
_TYPE, _QUEUE = "queue_0.kind_0.v1", "queue_0"

# Fields in braces are filled from the database. All are requested in addition to the route itself.
_VARIANTS: Mapping[str, Sequence[str]] = {
    "/": (
        *(f"/?window={window}" for window in ("15m", "6h", "1d", "7d", "30d")),
        *(f"/?queue={_QUEUE}&window={window}" for window in ("1h", "1d", "30d")),
        *(f"/?type={_TYPE}&window={window}" for window in ("1h", "1d", "30d")),
    ),
    "/tasks": (
        *(f"/tasks?status={status}" for status in STATUSES),
        *(f"/tasks?status={status}&queue={_QUEUE}" for status in ("pending", "succeeded")),
        "/tasks?type=queue_7.kind_4987.v1",
        "/tasks?type=no.such.type",
        "/tasks?search=kind_4987",
        "/tasks?search=declined",
        "/tasks?search=nothing%20is%20like%20this",
        "/tasks?status=dead_letter&search=declined",
        "/tasks?status=failed&search=nothing%20is%20like%20this",
        "/tasks?search={key}",
        "/tasks?where=" + quote('$.customer ? (@ == "c77")'),
        "/tasks?where=" + quote('$.customer ? (@ == "nobody")'),
        "/tasks?error={error_group}",
        "/tasks?since=1h",
        "/tasks?sort=-duration",
        "/tasks?status=failed&sort=type",
        "/tasks?before={middle}",
    ),
    "/errors": (
        *(f"/errors?window={window}" for window in ("1h", "7d", "30d", "start")),
        "/errors?type=queue_0.",
        f"/errors?type={_TYPE}&window=30d",
    ),
    "/v1/tasks": (
        *(f"/v1/tasks?status={status}" for status in STATUSES),
        "/v1/tasks?type=no.such.type",
        "/v1/tasks?search=declined",
        "/v1/tasks?search=nothing%20is%20like%20this",
        "/v1/tasks?error={error_group}",
        "/v1/tasks?limit=200",
    ),
    "/v1/errors": (f"/v1/errors?type={_TYPE}",),
}
# In place of the route, whose parameters have to be filled.
_EXAMPLES: Mapping[str, Sequence[str]] = {
    "/tasks/{task_id}": (*(f"/tasks/{{{status}}}" for status in (*STATUSES, "keyed", "parent", "batch")),),
    "/workers/show": ("/workers/show?id=worker-7",),
    "/schedules/show": ("/schedules/show?name=schedule-7",),
    "/processes/{process}": (
        "/processes/comms.send_email",
        *(f"/processes/refund?state={state}" for state in ("", "unfinished", "trouble")),
    ),
    "/processes/{process}/{process_id}": ("/processes/comms.send_email/{send}",),
    "/v1/processes/{process}": ("/v1/processes/comms.send_email", "/v1/processes/refund"),
    "/v1/processes/{process}/{process_id}": ("/v1/processes/comms.send_email/{send}",),
    "/callbacks/{task_id}/{link}": ("/callbacks/{suspended}/unknown",),
    "/outbox/show": tuple(
        f"/outbox/show?name=warehouse0&status={status}" for status in ("dead", "outstanding", "delivered")
    ),
    "/v1/workers/{worker_id:path}": ("/v1/workers/worker-7",),
    "/v1/schedules/{name}": ("/v1/schedules/schedule-7",),
    "/v1/subscriptions/{name}": ("/v1/subscriptions/warehouse0",),
    "/v1/subscriptions/{name}/deliveries": ("/v1/subscriptions/warehouse0/deliveries",),
    "/v1/tasks/{task_id}": tuple(f"/v1/tasks/{{{status}}}" for status in (*STATUSES, "keyed", "batch")),
    "/v1/tasks/{task_id}/events": ("/v1/tasks/{failed}/events", "/v1/tasks/{suspended}/events"),
    "/v1/tasks/{task_id}/errors": ("/v1/tasks/{failed}/errors",),
    "/v1/tasks/{task_id}/wait": ("/v1/tasks/{failed}/wait",),
    "/v1/tasks/{task_id}/stream": ("/v1/tasks/{failed}/stream",),
    "/v1/processes/{process}/{process_id}/wait": ("/v1/processes/comms.send_email/{send}/wait",),
    "/v1/processes/{process}/{process_id}/stream": ("/v1/processes/comms.send_email/{send}/stream",),
}
_FIELDS = {
    **{status: f"select (queues.find_tasks('{status}', max_tasks => 1)).task_ids[1]" for status in STATUSES},
    "keyed": """select task_id from queues.ready join queues.lane using (lane_id)
        where concurrency_key > '' limit 1""",
    "parent": "select parent_id from queues.child where step <> '' limit 1",
    "batch": "select parent_id from queues.child where step = '' limit 1",
    "key": "select idempotency_key from queues.task_key limit 1",
    "error_group": "select replace(error_group::text, '-', '') from queues.error"
    " order by error_id desc limit 1",
    "middle": "select task_id from queues.outcome where status = 'failed' order by task_id limit 1",
    "send": "select max(send_task_id) from comms.send_task",
}


@dataclass(frozen=True, slots=True)
class Address:
    """One request: the route that it belongs to, and whether the live part of the page is requested."""

    route: str
    url: str
    live: bool = False

    @property
    def name(self) -> str:
        return f"{self.url} (live)" if self.live else self.url


class NoExample(Exception):
    """A route with parameters that has no example."""


def addresses(web: FastAPI, connection: psycopg.Connection[Any]) -> list[Address]:
    """Of every GET route. Fields that the database cannot fill are an error, too."""
    fields = {name: _only(connection, query) for name, query in _FIELDS.items()}
    found = []
    for route, is_page in sorted(get_routes(web)):
        urls = [url.format(**fields) for url in urls_of(route)]
        found += [Address(route, url) for url in urls]
        found += [Address(route, url, live=True) for url in urls if is_page]
    return found


def urls_of(route: str) -> Sequence[str]:
    if route in _EXAMPLES:
        return _EXAMPLES[route]
    if "{" in route:
        raise NoExample(f"GET {route} has parameters: add an example to benchmarks/page_addresses.py")
    return route, *_VARIANTS.get(route, ())


def get_routes(web: FastAPI) -> Iterator[tuple[str, bool]]:
    """The path of every GET route, and whether it is a page with a live part."""
    for included in web.routes:
        contexts = getattr(included, "effective_route_contexts", None)
        routes: list[Any] = list(contexts()) if contexts else [included]
        for route in routes:
            if "GET" in (getattr(route, "methods", None) or ()):
                yield route.path, isinstance(getattr(route.endpoint, "__self__", None), Page)


def _only(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    if row is None or row[0] is None:
        raise NoExample(f"the database has no example: {query}")
    return row[0]
