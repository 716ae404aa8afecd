"""Waiting for tasks and processes: long poll and event stream, with a ticket or an access token."""

import time
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel

from holdfast._connections.wait_ticket import Subject, expiry
from holdfast._connections.waiting import WaitLimit
from holdfast.server.api.processes import ProcessId, ProcessName
from holdfast.server.auth import Credentials, authenticate, require_scope
from holdfast.server.connection_limit import source_of
from holdfast.server.openapi import problems
from holdfast.server.problem import Problem
from holdfast.server.schemas import ProcessWait, TaskWait
from holdfast.server.site import Site, site_of
from holdfast.server.wait_responses import (
    MAX_STREAM_SECONDS,
    SERVER,
    EventStreamResponse,
    LongPollResponse,
    StreamPosition,
    WaitRequest,
)

router = APIRouter(tags=["waiting"])

MAX_PER_TICKET = 16
MAX_PER_TOKEN = 1000
MAX_WAIT_SECONDS = 300

TicketParameter = Annotated[
    str | None,
    Query(max_length=200, description="A ticket for this task or process, instead of an access token."),
]
Timeout = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds until the response is 202.")]
LastEventId = Annotated[str | None, Header(description="The id of the last event received.")]
After = Annotated[
    str | None, Query(max_length=100, description="Like Last-Event-ID, for clients that cannot set headers.")
]
_SECURITY: dict[str, Any] = {"security": [{"access token": []}, {"ticket": []}]}


def _wait_responses(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    timed_out = {"model": model, "description": "Not ended within the timeout; continue at `next`"}
    return {202: timed_out, **problems(404, 429)}


def _stream_responses(events: str) -> dict[int | str, dict[str, Any]]:
    stream = {
        "description": f"Server-sent events: {events}",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    complete = {"description": "The event of Last-Event-ID was the last; nothing follows"}
    return {200: stream, 204: complete, **problems(404, 429)}


@router.get(
    "/tasks/{task_id}/wait",
    response_model=TaskWait,
    summary="Wait until a task ends",
    responses=_wait_responses(TaskWait),
    openapi_extra=_SECURITY,
)
async def wait_for_task(
    request: Request,
    task_id: UUID,
    credentials: Credentials,
    timeout: Timeout = 30,  # noqa: ASYNC109 - a query parameter
    ticket: TicketParameter = None,
) -> Response:
    """Holds the connection until the task has ended, or for `timeout` seconds."""
    return await _long_poll(request, task_id, credentials, ticket, timeout)


@router.get(
    "/tasks/{task_id}/stream",
    summary="Follow a task until it ends",
    response_class=Response,
    responses=_stream_responses("status, progress, end"),
    openapi_extra=_SECURITY,
)
async def stream_task(
    request: Request,
    task_id: UUID,
    credentials: Credentials,
    *,
    ticket: TicketParameter = None,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response:
    """Events: `status` for each step, `progress`, and finally `end`, with the result."""
    return await _stream(request, task_id, credentials, ticket, last_event_id or after)


@router.get(
    "/processes/{process}/{process_id}/wait",
    response_model=ProcessWait,
    summary="Wait until a process ends",
    responses=_wait_responses(ProcessWait),
    openapi_extra=_SECURITY,
)
async def wait_for_process(
    request: Request,
    process: ProcessName,
    process_id: ProcessId,
    credentials: Credentials,
    *,
    timeout: Timeout = 30,  # noqa: ASYNC109 - a query parameter
    ticket: TicketParameter = None,
) -> Response:
    """Holds the connection until the process has ended, or for `timeout` seconds."""
    return await _long_poll(request, (process, process_id), credentials, ticket, timeout)


@router.get(
    "/processes/{process}/{process_id}/stream",
    summary="Receive an event when a process ends",
    response_class=Response,
    responses=_stream_responses("end"),
    openapi_extra=_SECURITY,
)
async def stream_process(
    request: Request,
    process: ProcessName,
    process_id: ProcessId,
    credentials: Credentials,
    *,
    ticket: TicketParameter = None,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response:
    """One event, `end`, with the final status."""
    return await _stream(request, (process, process_id), credentials, ticket, last_event_id or after)


async def _long_poll(
    request: Request, subject: Subject, credentials: Credentials, ticket: str | None, seconds: float
) -> Response:
    wait = await _authorize(request, subject, credentials, ticket, seconds)
    return LongPollResponse(site_of(request).resources.waits, wait)


async def _stream(
    request: Request, subject: Subject, credentials: Credentials, ticket: str | None, after: str | None
) -> Response:
    # A stream by access token is short: the client has to present the token again.
    seconds = MAX_STREAM_SECONDS if ticket is not None else MAX_WAIT_SECONDS
    wait = await _authorize(request, subject, credentials, ticket, seconds)
    return EventStreamResponse(site_of(request).resources.waits, wait, StreamPosition.parse(after))


async def _authorize(
    request: Request, subject: Subject, credentials: Credentials, ticket: str | None, seconds: float
) -> WaitRequest:
    site = site_of(request)
    if ticket is not None:
        return _by_ticket(request, site, subject, ticket, seconds)
    caller = require_scope(await authenticate(site, credentials), "read")
    maximum = max(1, min(MAX_PER_TOKEN, site.options.max_waits // 2))
    limits = (_of_server(site), WaitLimit(f"token {caller.token_id}", maximum, "with this access token"))
    hidden = not site.options.shows_values
    return WaitRequest(subject, limits, hidden, _path(request), seconds, False)


def _by_ticket(request: Request, site: Site, subject: Subject, ticket: str, seconds: float) -> WaitRequest:
    now = time.time()
    expires = expiry(site.options.secrets, subject, ticket, now)
    if expires is None:
        raise Problem(
            401,
            "the ticket is expired, or not valid for this task or process",
            code="ticket_not_good",
            headers={"WWW-Authenticate": 'Bearer realm="holdfast"', "Access-Control-Allow-Origin": "*"},
        )
    address = source_of(request.client.host if request.client else "")
    limits = (_of_server(site), *_ticket_limits(site.options.max_waits, subject, address))
    next_url = f"{_path(request)}?ticket={ticket}"
    return WaitRequest(subject, limits, False, next_url, min(seconds, expires - now), True)


def _of_server(site: Site) -> WaitLimit:
    return WaitLimit(SERVER, site.options.max_waits, "on this server")


def _ticket_limits(max_waits: int, subject: Subject, address: str) -> tuple[WaitLimit, ...]:
    """A quarter of all waits for one address; a fifth of all waits is reserved for access tokens."""
    return (
        WaitLimit(f"ticket {subject}", MAX_PER_TICKET, "for this task or process"),
        WaitLimit(f"address {address}", max(1, max_waits // 4), "from this address"),
        WaitLimit("tickets", max_waits - max_waits // 5, "with a ticket"),
    )


def _path(request: Request) -> str:
    return str(request.scope.get("root_path", "") + request.scope["path"])
