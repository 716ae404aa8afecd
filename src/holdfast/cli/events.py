"""holdfast events: subscriptions and the delivery of events."""

import time
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import typer

from holdfast._engine import Engine
from holdfast._engine import events as engine_events
from holdfast._engine.deliveries import DeliveryState, list_deliveries, settled_deliveries
from holdfast._engine.events import (
    DeliveryStatus,
    OutboxStatus,
    dispatcher_status,
    event_deliveries,
    outbox_status,
    pause_subscription,
    redrive_events,
    resume_subscription,
    rotate_secret,
    test_subscription,
    unsubscribe,
)
from holdfast._serialization.text import visible
from holdfast._serialization.webhook_signature import new_secret
from holdfast.cli.arguments import Reason, document
from holdfast.cli.event_tail import tail
from holdfast.cli.frame import add_commands, group
from holdfast.cli.output import count_of
from holdfast.cli.report import Report, listing, pause_change
from holdfast.errors import HoldfastError, NotFound

POLL_SECONDS = 0.2
SETTLED = ("delivered", "dead")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the subscription.")]


def register(app: typer.Typer) -> None:
    events = group(app, "events", "Manage subscriptions, which send events to other systems.")
    add_commands(events, subscribe, pause, resume, rotate, redrive, remove, tail, list=list_subscriptions)
    add_commands(events, deliveries=list_subscription_deliveries, test=send_test_event)


@dataclass(frozen=True)
class SubscriptionOptions:
    """Which events a subscription sends, and where to."""

    sink: Annotated[
        str, typer.Option(help="Sink: http, nats, amqp, file, console, or one of an installed package.")
    ] = "http"
    to: Annotated[
        str,
        typer.Option("--to", metavar="TARGET", help="Address of the receiver, or env:HOLDFAST_SINK_NAME."),
    ] = "-"
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--event",
            metavar="PATTERN",
            help="Event types to send: order.created, order.*; repeatable. Default: all.",
        ),
    ] = None
    prefix: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="PREFIX",
            help="Only events about tasks whose type begins with this prefix; repeatable.",
        ),
    ] = None
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", metavar="NAMESPACE", help="Only events of this namespace; repeatable."),
    ] = None
    option: Annotated[
        Any,
        typer.Option("--options", parser=document, metavar="JSON", help="Options of the sink."),
    ] = None
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            help="Signing secret: whsec_… or env:HOLDFAST_SINK_NAME. Default: a new secret for http.",
        ),
    ] = None
    max_attempts: Annotated[
        int | None, typer.Option(help="Maximum number of attempts before an event is dead. Default: 20.")
    ] = None


def subscribe(engine: Engine, name: NameArgument, options: SubscriptionOptions) -> Report:
    """Create a subscription: send matching events to a receiver from now on."""
    made = new_secret() if options.sink == "http" and not options.secret else None
    known = any(found.name == name for found in engine.run(outbox_status()))
    engine.run(
        engine_events.subscribe(
            name,
            options.sink,
            options.to,
            options.event or ["*"],
            type_prefixes=options.prefix,
            options=options.option,
            secrets=[made] if made else list(options.secret or ()),
            max_attempts=options.max_attempts,
            namespaces=options.namespace,
        )
    )
    made = None if known else made
    shown = [f"Subscription {visible(name)} {'already exists' if known else 'created'}."]
    if made:
        shown.append(
            f"Deliveries are signed with this secret. Save it now; it cannot be shown again:\n{made}"
        )
    return Report({"name": name, "created": not known, "secret": made}, *shown)


def list_subscriptions(engine: Engine) -> Report:
    """List subscriptions, their pending events and the state of their receivers."""
    return listing(
        "subscriptions",
        engine.run(outbox_status()),
        "name events types sink target pending oldest dead state last_error",
        none="No subscriptions found. Create one: holdfast events subscribe NAME --to URL",
        events=lambda one: ",".join(one.event_types),
        types=lambda one: ",".join(one.type_prefixes),
        state=_state,
        last_error=lambda one: one.problem or (one.last_error or "").partition("\n")[0][:80],
    )


def pause(engine: Engine, name: NameArgument, reason: Reason = None) -> Report:
    """Pause a subscription. Its events are kept until it is resumed."""
    changed = engine.run(pause_subscription(name, reason))
    return pause_change("subscription", name, paused=True, changed=changed)


def resume(engine: Engine, name: NameArgument, reason: Reason = None) -> Report:
    """Resume a subscription and send its events immediately."""
    changed = engine.run(resume_subscription(name, reason))
    return pause_change("subscription", name, paused=False, changed=changed)


def send_test_event(
    engine: Engine,
    name: NameArgument,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the result.")
    ] = 20,
) -> Report:
    """Send a test event to a subscription and report the result."""
    event_id = engine.run(test_subscription(name))
    found = _wait_for(engine, name, event_id, wait)
    why = None if found.status in SETTLED else _reason_pending(engine, name)
    return Report(
        {"event_id": event_id, "delivery": found, "reason": why},
        _result_text(event_id, found, why),
        exit_code=0 if found.status == "delivered" else HoldfastError.exit_code,
    )


def rotate(
    engine: Engine,
    name: NameArgument,
    secret: Annotated[
        str | None, typer.Option(help="New secret: whsec_… or env:HOLDFAST_SINK_NAME. Default: generate one.")
    ] = None,
    keep: Annotated[
        int, typer.Option(min=0, max=4, help="How many previous secrets to keep signing with.")
    ] = 1,
) -> Report:
    """Add a new signing secret. When all receivers use it, rotate again with --keep 0."""
    made = None if secret else new_secret()
    count = engine.run(rotate_secret(name, secret or made or "", keep))
    shown = [f"Subscription {visible(name)} is signed with {count_of(count, 'secret')}."]
    if made:
        shown.append(f"The new secret. Save it now; it cannot be shown again:\n{made}")
    return Report({"name": name, "secrets": count, "secret": made}, *shown)


def redrive(
    *,
    engine: Engine,
    name: NameArgument,
    event: Annotated[
        UUID | None, typer.Option(metavar="ID", help="Only this event, also if it was delivered.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of events.")] = 1000,
    reason: Reason = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; print how many events would be sent again.")
    ] = False,
) -> Report:
    """Send dead events of a subscription again."""
    if not dry_run:
        count = engine.run(redrive_events(name, event, limit, reason=reason))
    elif event is None:
        count = min(limit, _status_of(engine, name).dead)
    else:
        count = engine.run(settled_deliveries(name, event))
    return Report(
        {"name": name, "redriven": count, "dry_run": dry_run},
        f"{count_of(count, 'event')} {'would' if dry_run else 'will'} be sent again.",
    )


def list_subscription_deliveries(
    engine: Engine,
    name: NameArgument,
    status: Annotated[
        DeliveryState, typer.Option(help="dead: failed for good; outstanding; or delivered.")
    ] = "dead",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of deliveries.")] = 100,
) -> Report:
    """List deliveries of a subscription, with their errors."""
    columns = "event_id event_type subject status attempt due_at settled_at last_error"
    return listing("deliveries", engine.run(list_deliveries(name, status, limit)), columns)


def remove(engine: Engine, name: NameArgument) -> Report:
    """Remove a subscription. Its pending events are not sent."""
    engine.run(unsubscribe(name))
    return Report({"name": name, "removed": True}, f"Subscription {visible(name)} removed.")


def _state(one: OutboxStatus) -> str:
    states = {"closed": "running", "open": "failing"}
    return "broken" if one.problem else "paused" if one.paused_at else states.get(one.breaker, "probing")


def _wait_for(engine: Engine, name: str, event_id: UUID, seconds: float) -> DeliveryStatus:
    """Wait until the event was delivered or failed once, or no dispatcher can send it."""
    ends_at = time.monotonic() + seconds
    while True:
        (found,) = engine.run(event_deliveries(event_id))
        settled = found.status in SETTLED or found.last_error is not None
        if settled or time.monotonic() > ends_at or _status_of(engine, name).problem:
            return found
        time.sleep(POLL_SECONDS)


def _status_of(engine: Engine, name: str) -> OutboxStatus:
    for one in engine.run(outbox_status()):
        if one.name == name:
            return one
    raise NotFound(f"there is no subscription {name!r}", hint="holdfast events list shows them.")


def _reason_pending(engine: Engine, name: str) -> str:
    one = _status_of(engine, name)
    if one.problem:
        return one.problem
    if one.paused_at:
        return f"the subscription is paused. Resume it: holdfast events resume {name}"
    if not any(dispatcher.live for dispatcher in engine.run(dispatcher_status())):
        return "no dispatcher is running. Start one: holdfast dispatch"
    if one.breaker != "closed":
        return f"sending is suspended because the receiver fails: {one.last_error}"
    return "a dispatcher is running but has not sent it yet"


def _result_text(event_id: UUID, found: DeliveryStatus, why: str | None) -> str:
    if found.status == "delivered":
        return f"Event {event_id} was delivered."
    if found.last_error is not None:
        return f"Event {event_id} was not delivered: {visible(found.last_error)}"
    return f"Event {event_id} is {found.status}: {visible(why or 'it was not sent')}"
