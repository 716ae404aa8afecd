"""Subscriptions of the outbox: backlog, deliveries; pause, resume, send again."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from pydantic import AwareDatetime, Field, TypeAdapter

from holdfast._engine import AsyncEngine, deliveries
from holdfast._engine.deliveries import Delivery, DeliveryState, SubscriptionEvent
from holdfast._engine.events import (
    OutboxStatus,
    outbox_status,
    pause_subscription,
    redrive_events,
    resume_subscription,
)
from holdfast.server.access import Caller
from holdfast.server.auth import MayOperate, MayRead
from holdfast.server.hidden_values import hide_delivery, hide_subscription
from holdfast.server.openapi import REASON_BODY, body_schema, json_body, problems
from holdfast.server.problem import Problem
from holdfast.server.request_body import parse, read_optional, read_reason, validate
from holdfast.server.schemas import Reason, ResponseModel, Strict
from holdfast.server.site import Site, site_of

router = APIRouter(tags=["outbox"])

MAX_REDRIVEN = 10_000
SubscriptionName = Annotated[str, Path(max_length=200, examples=["shop"])]


class Subscriptions(ResponseModel):
    subscriptions: list[OutboxStatus]


class SubscriptionDetail(ResponseModel):
    subscription: OutboxStatus
    acts: Annotated[list[SubscriptionEvent], Field(description="Newest first.")]


class Deliveries(ResponseModel):
    deliveries: list[Delivery]


class SubscriptionPause(ResponseModel):
    name: str
    paused: bool
    changed: Annotated[bool, Field(description="False if it was in this state already.")]


class RedriveBody(Strict):
    """Without an event: all that failed for good, at most 10,000 in one call, the oldest first."""

    event_id: Annotated[
        UUID | None, Field(strict=False, description="Only this event, also if it was delivered.")
    ] = None
    until: Annotated[
        AwareDatetime | None, Field(strict=False, description="Only events that had failed by then.")
    ] = None
    dry_run: Annotated[bool, Field(description="Change nothing; return how many there would be.")] = False
    reason: Annotated[Reason | None, Field(examples=["the receiver is back"])] = None


class Redriven(ResponseModel):
    name: str
    events: Annotated[int, Field(description="How many are sent again.")]
    dry_run: bool


_REDRIVE = TypeAdapter(RedriveBody)


@router.get("/subscriptions", summary="List subscriptions", responses=problems())
async def list_subscriptions(request: Request, caller: MayRead) -> Subscriptions:
    del caller
    found = await site_of(request).read(outbox_status())
    shown = site_of(request).options.shows_values
    return Subscriptions(subscriptions=found if shown else [hide_subscription(one) for one in found])


@router.get("/subscriptions/{name}", summary="Show a subscription", responses=problems(404))
async def show_subscription(request: Request, name: SubscriptionName, caller: MayRead) -> SubscriptionDetail:
    del caller
    shown = site_of(request).options.shows_values

    async def read(engine: AsyncEngine) -> SubscriptionDetail:
        one = await _find(engine, name)
        return SubscriptionDetail(
            subscription=one if shown else hide_subscription(one),
            acts=await engine.run(deliveries.subscription_events(name)),
        )

    return await site_of(request).read(read)


@router.get(
    "/subscriptions/{name}/deliveries",
    summary="List deliveries of a subscription",
    responses=problems(404, 422),
)
async def list_deliveries(
    request: Request,
    name: SubscriptionName,
    caller: MayRead,
    *,
    status: DeliveryState = "dead",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Deliveries:
    """`dead` ones failed for good. Outstanding ones with the most attempts, and others newest, come first."""
    del caller
    found = await site_of(request).read(deliveries.list_deliveries(name, status, limit))
    shown = site_of(request).options.shows_values
    return Deliveries(deliveries=found if shown else [hide_delivery(one) for one in found])


@router.post(
    "/subscriptions/{name}/pause",
    summary="Pause a subscription: its events wait",
    openapi_extra=REASON_BODY,
    responses=problems(404, 413, 415, 422),
)
async def pause(request: Request, name: SubscriptionName, caller: MayOperate) -> SubscriptionPause:
    reason = await read_reason(request)
    changed = await site_of(request).operate(caller, pause_subscription(name, reason), repeatable=True)
    return SubscriptionPause(name=name, paused=True, changed=changed)


@router.post(
    "/subscriptions/{name}/resume",
    summary="Resume a subscription",
    openapi_extra=REASON_BODY,
    responses=problems(404, 413, 415, 422),
)
async def resume(request: Request, name: SubscriptionName, caller: MayOperate) -> SubscriptionPause:
    reason = await read_reason(request)
    changed = await site_of(request).operate(caller, resume_subscription(name, reason), repeatable=True)
    return SubscriptionPause(name=name, paused=False, changed=changed)


@router.post(
    "/subscriptions/{name}/redrive",
    summary="Send failed events again",
    openapi_extra=json_body(body_schema(RedriveBody), required=False),
    responses=problems(404, 413, 415, 422),
)
async def redrive_subscription(request: Request, name: SubscriptionName, caller: MayOperate) -> Redriven:
    given = validate(_REDRIVE, parse(await read_optional(request)))
    site = site_of(request)
    if given.dry_run:
        events = await site.read(lambda engine: _count(engine, name, given.event_id, given.until))
    else:
        events = await redrive(
            site, caller, name, event_id=given.event_id, until=given.until, reason=given.reason
        )
    return Redriven(name=name, events=events, dry_run=given.dry_run)


async def redrive(
    site: Site,
    caller: Caller,
    name: str,
    *,
    event_id: UUID | None = None,
    until: datetime | None = None,
    reason: str | None = None,
) -> int:
    """Returns how many events are sent again. Raises a problem if the one event is not its own."""
    statement = redrive_events(name, event_id, MAX_REDRIVEN, reason=reason, died_until=until)
    events = await site.operate(caller, statement)
    if event_id is not None and not events:
        raise _no_delivery(name, event_id)
    return events


async def _count(engine: AsyncEngine, name: str, event_id: UUID | None, until: datetime | None) -> int:
    one = await _find(engine, name)
    if event_id is None:
        dead = one.dead if until is None else await engine.run(deliveries.dead_until(name, until))
        return min(dead, MAX_REDRIVEN)
    settled = await engine.run(deliveries.settled_deliveries(name, event_id, until))
    if not settled:
        raise _no_delivery(name, event_id)
    return settled


async def _find(engine: AsyncEngine, name: str) -> OutboxStatus:
    for one in await engine.run(outbox_status()):
        if one.name == name:
            return one
    raise Problem(404, f"there is no subscription {name!r}", code="QF404")


def _no_delivery(name: str, event_id: UUID) -> Problem:
    return Problem(
        404,
        f"event {event_id} was neither delivered to {name!r} nor did it fail for good",
        code="QF404",
        hint="It may belong to another subscription, or its delivery is still outstanding.",
    )
