"""The deliveries of one subscription, and the acts on it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from holdfast._engine.statement import Rows, Statement, call, integer, many, scalar, select, text

DeliveryState = Literal["dead", "outstanding", "delivered"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery in the list of one subscription."""

    event_id: UUID
    event_type: str
    subject: str | None
    task_id: UUID | None
    occurred_at: datetime
    status: str
    attempt: int
    due_at: datetime | None
    settled_at: datetime | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class SubscriptionEvent:
    """An act on a subscription, by whom and why."""

    act: str
    occurred_at: datetime
    actor: str
    reason: str | None
    event_id: UUID | None
    events: int | None


def list_deliveries(
    name: str, status: DeliveryState = "dead", max_deliveries: int | None = None
) -> Statement[list[Delivery]]:
    arguments = {"name": text(name), "of_status": text(status), "max_deliveries": integer(max_deliveries)}
    return call("queues.list_deliveries", many(Delivery), arguments)


def subscription_events(name: str, limit: int = 50) -> Statement[list[SubscriptionEvent]]:
    """Returns the acts on a subscription, newest first."""
    rest = """where answer.subscription = $1::text order by answer.act_id desc limit $2::integer"""
    return select(many(SubscriptionEvent), "queues.subscription_event", rest, (name, limit))


def dead_until(name: str, until: datetime) -> Statement[int]:
    """Returns how many events of a subscription had failed for good by then."""
    rest = """where answer.subscription = $1::text and answer.status = 'dead'
      and answer.settled_at <= $2::timestamptz"""
    return select(Rows("count(*)", scalar), "queues.delivery_status", rest, (name, until))


def settled_deliveries(name: str, event_id: UUID, until: datetime | None = None) -> Statement[int]:
    """Returns how many deliveries of this event to the subscription succeeded or failed for good: 0 or 1.

    With `until`, only if it had failed by then; one that succeeded counts at any time.
    """
    rest = """where answer.event_id = $1::uuid and answer.subscription = $2::text
      and (answer.status = 'delivered'
        or answer.status = 'dead' and answer.settled_at <= coalesce($3::timestamptz, 'infinity'))"""
    return select(Rows("count(*)", scalar), "queues.delivery_status", rest, (event_id, name, until))
