"""GET …/wait and …/stream of tasks and of processes: with a ticket, or for those who may read."""

import time
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Path, Query, Request, Response

from holdfast.client.wait_ticket import Subject, expiry
from holdfast.http.api import schemas
from holdfast.http.api.openapi_parts import problems
from holdfast.http.auth import Credentials, identify, permitted
from holdfast.http.connection_limit import source_of
from holdfast.http.problem import Problem
from holdfast.http.site import site_of
from holdfast.http.stream import LONGEST_SECONDS, EventStreamResponse, parse_position
from holdfast.http.wait_responses import LongPollResponse, WaitRequest
from holdfast.http.waiting import WaitQuota

router = APIRouter(tags=["waiting"])

MAX_PER_TICKET = 16
MAX_PER_TOKEN = 1000
LONGEST_WAIT = 300

TicketParameter = Annotated[
    str | None, Query(max_length=200, description="A ticket for just this, instead of an access token.")
]
Timeout = Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds until the answer is 202.")]
ProcessName = Annotated[
    str,
    Path(pattern=r"^[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?$", examples=["comms.send_email"]),
]
ProcessId = Annotated[int, Path(ge=1, le=2**63 - 1, description="The id that its kickoff returned.")]
LastEventId = Annotated[str | None, Header(description="Where the stream before broke off.")]
After = Annotated[str | None, Query(max_length=100, description="The same, for who cannot set headers.")]
_WITH_TICKET: dict[str, Any] = {"security": [{"access token": []}, {"ticket": []}]}


@router.get(
    "/tasks/{task_id}/wait",
    response_model=schemas.Waiting,
    summary="Wait until a task ends",
    responses={
        202: {"model": schemas.Waiting, "description": "It has not ended in time; `next` is where to go on"},
        **problems(404, 429),
    },
    openapi_extra=_WITH_TICKET,
)
async def wait_for_task(
    request: Request,
    task_id: UUID,
    credentials: Credentials,
    timeout: Timeout = 30,  # noqa: ASYNC109 - how long the caller wants to wait
    ticket: TicketParameter = None,
) -> Response:
    """Holds the connection until the task has ended, or for `timeout` seconds."""
    ask = await _ask(request, task_id, credentials, ticket, timeout)
    return LongPollResponse(site_of(request).room.waits, ask)


@router.get(
    "/tasks/{task_id}/stream",
    summary="Follow a task until it ends",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events: status, progress, end",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        204: {"description": "Last-Event-ID is the end: there is nothing to come"},
        **problems(404, 429),
    },
    openapi_extra=_WITH_TICKET,
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
    """Events: `status` for each step of its life, `progress`, and at last `end`, with the result."""
    longest = LONGEST_SECONDS if ticket is not None else LONGEST_WAIT  # then it has to show its token again
    ask = await _ask(request, task_id, credentials, ticket, longest)
    return EventStreamResponse(site_of(request).room.waits, ask, parse_position(last_event_id or after))


@router.get(
    "/processes/{process}/{process_id}/wait",
    response_model=schemas.WaitingForProcess,
    summary="Wait until a process ends",
    responses={
        202: {
            "model": schemas.WaitingForProcess,
            "description": "It has not ended in time; `next` is where to go on",
        },
        **problems(404, 429),
    },
    openapi_extra=_WITH_TICKET,
)
async def wait_for_process(
    request: Request,
    process: ProcessName,
    process_id: ProcessId,
    credentials: Credentials,
    *,
    timeout: Timeout = 30,  # noqa: ASYNC109 - how long the caller wants to wait
    ticket: TicketParameter = None,
) -> Response:
    """Holds the connection until the process has ended, or for `timeout` seconds."""
    ask = await _ask(request, (process, process_id), credentials, ticket, timeout)
    return LongPollResponse(site_of(request).room.waits, ask)


@router.get(
    "/processes/{process}/{process_id}/stream",
    summary="Be told when a process ends",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events: end",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        204: {"description": "Last-Event-ID is the end: there is nothing to come"},
        **problems(404, 429),
    },
    openapi_extra=_WITH_TICKET,
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
    """One event, `end`, with how the process ended."""
    longest = LONGEST_SECONDS if ticket is not None else LONGEST_WAIT
    ask = await _ask(request, (process, process_id), credentials, ticket, longest)
    return EventStreamResponse(site_of(request).room.waits, ask, parse_position(last_event_id or after))


async def _ask(
    request: Request, subject: Subject, credentials: Credentials, ticket: str | None, seconds: float
) -> WaitRequest:
    site, here = site_of(request), request.scope.get("root_path", "") + request.scope["path"]
    if ticket is not None:
        now = time.time()
        expires = expiry(site.options.secrets, subject, ticket, now)
        if expires is None:
            raise Problem(
                401,
                "this ticket is not good for this, or not any more",
                code="ticket_not_good",
                headers={"WWW-Authenticate": 'Bearer realm="holdfast"', "Access-Control-Allow-Origin": "*"},
            )
        address = source_of(request.client.host if request.client else "")
        shares = _shares_by_ticket(site.options.max_waits, subject, address)
        going_on = f"{here}?ticket={ticket}"
        return WaitRequest(subject, shares, False, going_on, min(seconds, expires - now), True)
    caller = permitted(await identify(site, credentials), "read")
    most = max(1, min(MAX_PER_TOKEN, site.options.max_waits // 2))
    own = WaitQuota(f"token {caller.token_id}", most, "with this access token")
    return WaitRequest(subject, (own,), True, here, seconds, False)


def _shares_by_ticket(most: int, subject: Subject, address: str) -> tuple[WaitQuota, ...]:
    """One client can take a quarter of all, and all who have tickets leave a fifth to those with a token."""
    return (
        WaitQuota(f"ticket {subject}", MAX_PER_TICKET, "for this task or process"),
        WaitQuota(f"address {address}", max(1, most // 4), "from your address"),
        WaitQuota("tickets", most - most // 5, "with a ticket"),
    )
