"""The outbox: events, who asks for them, and how they travel."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

from holdfast.model.document import Json


@dataclass(frozen=True, slots=True)
class Subscription:
    """Who asks for which events, as a dispatcher is told: with its secrets."""

    subscription_id: int
    name: str
    sink: str
    target: str
    options: Json
    secrets: list[str] = field(repr=False)
    outstanding: bool


@dataclass(frozen=True, slots=True)
class ClaimedEvent:
    """An event that a dispatcher holds until its lease ends."""

    event_id: UUID
    token: int
    attempt: int
    aggregate_id: str
    event_type: str
    source: str
    subject: str | None
    occurred_at: datetime
    traceparent: str | None
    data_json: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of a claimed event."""

    subscription_id: int
    event_id: UUID
    token: int
    status: Literal["delivered", "failed", "rejected", "released"]
    error: str | None = None
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """How a subscription does."""

    name: str
    event_types: list[str]
    type_prefixes: list[str]
    sink: str
    target: str
    options: Json
    secrets: int
    max_attempts: int
    created_at: datetime
    created_by: str
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    pending: int
    in_flight: int
    oldest: datetime | None
    dead: int
    breaker: str
    failures: int
    open_until: datetime | None
    last_failure_at: datetime | None
    last_error: str | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """An event on its way to one subscription."""

    event_id: UUID
    event_type: str
    occurred_at: datetime
    subscription: str | None
    status: str
    attempt: int
    due_at: datetime | None
    settled_at: datetime | None
    dispatcher_id: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class TailedEvent:
    """An event of the outbox, with its place in the order in which events became known."""

    event_id: UUID
    event_type: str
    occurred_at: datetime
    aggregate_id: str | None
    subject: str | None
    task_id: UUID | None
    data: Json
    delivered: int
    dead: int
    deliveries: int
    transaction_id: int
    event_number: int
    final: bool


@dataclass(frozen=True, slots=True)
class DispatcherStatus:
    """A process that sends events."""

    dispatcher_id: str
    hostname: str
    pid: int | None
    version: str | None
    sinks: list[str]
    started_at: datetime
    last_seen: datetime
    live: bool
