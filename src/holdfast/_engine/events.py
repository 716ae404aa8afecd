"""Events: the outbox, its subscriptions and deliveries, and the inbox."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from holdfast._engine.statement import (
    BigInt,
    Bound,
    Rows,
    Statement,
    call,
    document,
    integer,
    interval,
    many,
    select,
    sql_function,
    text,
    texts,
)
from holdfast._serialization.text import Json, json_array, json_object, report_json


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription as a dispatcher needs it, with its secrets."""

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
    namespace: str
    aggregate_id: str
    event_type: str
    source: str
    subject: str | None
    occurred_at: datetime
    traceparent: str | None
    data_json: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of sending a claimed event."""

    subscription_id: int
    event_id: UUID
    token: int
    status: Literal["delivered", "failed", "rejected", "released"]
    error: str | None = None
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """A subscription, its backlog and its health."""

    name: str
    event_types: list[str]
    type_prefixes: list[str]
    namespaces: list[str]
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
    """The delivery of an event to one subscription."""

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
    """An event of the outbox, with its position in the order of commits."""

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
    """A dispatcher process, which sends events."""

    dispatcher_id: str
    hostname: str
    pid: int | None
    version: str | None
    sinks: list[str]
    started_at: datetime
    last_seen: datetime
    live: bool


@sql_function("queues.emit")
def emit(
    event_type: str,
    payload: Any = None,
    aggregate_id: str | None = None,
    *,
    subject: str | None = None,
    source: str | None = None,
    traceparent: str | None = None,
) -> Statement[UUID]:
    """Returns the id of the event."""


@sql_function("queues.receive")
def receive(event_id: str, source: str) -> Statement[bool]:
    """Returns true if the event was not received before."""


@sql_function("queues.subscribe")
def subscribe(
    name: str,
    sink: str,
    target: str,
    event_types: Sequence[str],
    *,
    type_prefixes: Sequence[str] | None = None,
    options: Any = None,
    secrets: Sequence[str] | None = None,
    max_attempts: int | None = None,
    namespaces: Sequence[str] | None = None,
) -> Statement[int]:
    """Create or change a subscription. Returns its id."""


@sql_function("queues.unsubscribe")
def unsubscribe(name: str) -> Statement[None]:
    """End a subscription."""


@sql_function("queues.pause_subscription")
def pause_subscription(name: str, reason: str | None = None) -> Statement[bool]:
    """Returns true if it was running until now."""


@sql_function("queues.resume_subscription")
def resume_subscription(name: str, reason: str | None = None) -> Statement[bool]:
    """Returns true if it was paused until now."""


@sql_function("queues.rotate_secret")
def rotate_secret(name: str, secret: str, keep: int | None = None) -> Statement[int]:
    """Returns how many secrets there are now."""


@sql_function("queues.test_subscription")
def test_subscription(name: str) -> Statement[UUID]:
    """Emit a test event to this subscription only. Returns its id."""


@sql_function("queues.redrive_events")
def redrive_events(
    name: str,
    event_id: UUID | None = None,
    max_events: int | None = None,
    *,
    reason: str | None = None,
    died_until: datetime | None = None,
) -> Statement[int]:
    """Send dead events again, or one event, dead or delivered. Returns how many there were."""


def dispatcher_heartbeat(
    dispatcher_id: str,
    waiting: Sequence[int] = (),
    *,
    hostname: str | None = None,
    pid: int | None = None,
    version: str | None = None,
    sinks: Sequence[str] = (),
    unusable: Mapping[int, str] | None = None,
) -> Statement[list[Subscription]]:
    """Register the dispatcher. Returns the subscriptions that it serves."""
    arguments = {
        "dispatcher_id": text(dispatcher_id),
        "waiting": Bound("integer[]", list(waiting)),
        "hostname": text(hostname),
        "pid": integer(pid),
        "version": text(version),
        "sinks": texts(sinks),
        "unusable": document({str(number): reason for number, reason in (unusable or {}).items()}),
    }
    return call("queues.dispatcher_heartbeat", many(Subscription), arguments)


def claim_events(
    dispatcher_id: str,
    subscription_id: int,
    max_events: int | None = None,
    *,
    lease: timedelta | None = None,
    after: tuple[str, str] = ("", ""),
) -> Statement[list[ClaimedEvent]]:
    """Continue after this namespace and aggregate, and then from the beginning."""
    arguments = {
        "dispatcher_id": text(dispatcher_id),
        "subscription_id": integer(subscription_id),
        "max_events": integer(max_events),
        "lease": interval(lease),
        "after_namespace": text(after[0]),
        "after_aggregate": text(after[1]),
    }
    return call("queues.claim_events", many(ClaimedEvent), arguments)


def settle_events(dispatcher_id: str, results: Iterable[Settlement]) -> Statement[list[str]]:
    """Record the outcomes of claimed events. Returns a verdict for each, in their order."""
    arguments = {
        "dispatcher_id": text(dispatcher_id),
        "results": document(json_array(map(_settlement_json, results))),
    }
    verdicts = Rows("answer.verdict", lambda rows: [str(row[0]) for row in rows])
    return call("queues.settle_events", verdicts, arguments)


@sql_function("queues.retire_dispatcher")
def retire_dispatcher(dispatcher_id: str) -> Statement[bool]:
    """Returns true if it was registered."""


@sql_function("queues.prune_events")
def prune_events(
    older_than: timedelta | None = None,
    dead_older_than: timedelta | None = None,
    max_events: int | None = None,
) -> Statement[int]:
    """Returns how many events were removed."""


@sql_function("queues.prune_inbox")
def prune_inbox(older_than: timedelta | None = None, max_events: int | None = None) -> Statement[int]:
    """Returns how many received events were removed."""


def outbox_status() -> Statement[list[OutboxStatus]]:
    return select(many(OutboxStatus), "queues.outbox_status", "order by answer.name")


def dispatcher_status() -> Statement[list[DispatcherStatus]]:
    return select(many(DispatcherStatus), "queues.dispatcher_status", "order by 1")


def task_deliveries(task_id: UUID) -> Statement[list[DeliveryStatus]]:
    """Returns the deliveries of every event about the task."""
    return _deliveries("task_id", task_id)


def event_deliveries(event_id: UUID) -> Statement[list[DeliveryStatus]]:
    return _deliveries("event_id", event_id)


@sql_function("queues.tail_events")
def tail_events(
    after_transaction: BigInt | None = None, after_number: BigInt | None = None, max_events: int | None = None
) -> Statement[list[TailedEvent]]:
    """Returns events in the order of commits after this position; without a position, the newest."""


def _deliveries(column: str, value: UUID) -> Statement[list[DeliveryStatus]]:
    rest = f"""where answer.{column} = $1::uuid
      order by answer.occurred_at, answer.event_id, answer.subscription"""
    return select(many(DeliveryStatus), "queues.delivery_status", rest, (value,))


def _settlement_json(result: Settlement) -> str:
    return json_object(
        subscription_id=str(result.subscription_id),
        event_id=f'"{result.event_id}"',
        token=str(result.token),
        status=f'"{result.status}"',
        error=None if result.error is None else report_json(result.error),
        delay=None if result.delay is None else repr(float(result.delay)),
    )
