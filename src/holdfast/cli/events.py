"""holdfast events: subscriptions and the delivery of events."""

import time
from typing import Annotated, Any
from uuid import UUID

import typer

from holdfast.cli.arguments import Reason, document
from holdfast.cli.connection import DatabaseUrl, connected
from holdfast.cli.event_tail import tail
from holdfast.cli.output import Json, count_of, print_json, print_table
from holdfast.engine import Engine
from holdfast.engine import events as engine_events
from holdfast.engine.deliveries import DeliveryState, list_deliveries, settled_deliveries
from holdfast.engine.events import (
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
from holdfast.errors import HoldfastError, TaskNotFound
from holdfast.outbox.webhook_signatures import new_secret
from holdfast.serialization.text import visible

POLL_SECONDS = 0.2
SETTLED = ("delivered", "dead")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the subscription.")]

events = typer.Typer(
    name="events", help="Manage subscriptions, which send events to other systems.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    for command in (subscribe, pause, resume, rotate, redrive, remove, tail):
        events.command()(command)
    events.command("list")(list_subscriptions)
    events.command("deliveries")(list_subscription_deliveries)
    events.command("test")(send_test_event)
    app.add_typer(events)


def subscribe(
    name: NameArgument,
    *,
    sink: Annotated[
        str, typer.Option(help="Sink: http, nats, amqp, file, console, or one of an installed package.")
    ] = "http",
    to: Annotated[
        str,
        typer.Option("--to", metavar="TARGET", help="Address of the receiver, or env:HOLDFAST_SINK_NAME."),
    ] = "-",
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--event",
            metavar="PATTERN",
            help="Event types to send: order.created, order.*; repeatable. Default: all.",
        ),
    ] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="PREFIX",
            help="Only events about tasks whose type begins with this prefix; repeatable.",
        ),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", metavar="NAMESPACE", help="Only events of this namespace; repeatable."),
    ] = None,
    option: Annotated[
        Any,
        typer.Option("--options", parser=document, metavar="JSON", help="Options of the sink."),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            help="Signing secret: whsec_… or env:HOLDFAST_SINK_NAME. Default: a new secret for http.",
        ),
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option(help="Maximum number of attempts before an event is dead. Default: 20.")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Create a subscription: send matching events to a receiver from now on."""
    made = new_secret() if sink == "http" and not secret else None
    secrets = [made] if made else list(secret or ())
    with connected(database_url) as engine:
        known = any(found.name == name for found in engine.run(outbox_status()))
        engine.run(
            engine_events.subscribe(
                name,
                sink,
                to,
                event or ["*"],
                type_prefixes=prefix,
                options=option,
                secrets=secrets,
                max_attempts=max_attempts,
                namespaces=namespace,
            )
        )
    made = None if known else made
    if as_json:
        print_json({"name": name, "created": not known, "secret": made})
        return
    typer.echo(f"Subscription {visible(name)} {'already exists' if known else 'created'}.")
    if made:
        typer.echo(f"Deliveries are signed with this secret. Save it now; it cannot be shown again:\n{made}")


def list_subscriptions(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """List subscriptions, their pending events and the state of their receivers."""
    with connected(database_url) as engine:
        found = engine.run(outbox_status())
    if as_json:
        print_json({"subscriptions": found})
    elif not found:
        typer.echo("No subscriptions found. Create one: holdfast events subscribe NAME --to URL", err=True)
    else:
        columns = [
            "name",
            "events",
            "types",
            "sink",
            "target",
            "pending",
            "oldest",
            "dead",
            "state",
            "last_error",
        ]
        print_table(columns, [_row(one) for one in found])


def pause(
    name: NameArgument, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Pause a subscription. Its events are kept until it is resumed."""
    with connected(database_url) as engine:
        changed = engine.run(pause_subscription(name, reason))
    _report(name, "paused", changed=changed, as_json=as_json)


def resume(
    name: NameArgument, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Resume a subscription and send its events immediately."""
    with connected(database_url) as engine:
        changed = engine.run(resume_subscription(name, reason))
    _report(name, "running", changed=changed, as_json=as_json)


def send_test_event(
    name: NameArgument,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the result.")
    ] = 20,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Send a test event to a subscription and report the result."""
    with connected(database_url) as engine:
        event_id = engine.run(test_subscription(name))
        found = _wait_for(engine, name, event_id, wait)
        why = None if found.status in SETTLED else _reason_pending(engine, name)
    if as_json:
        print_json({"event_id": event_id, "delivery": found, "reason": why})
    else:
        typer.echo(_result_text(event_id, found, why))
    if found.status != "delivered":
        raise typer.Exit(HoldfastError.exit_code)


def rotate(
    name: NameArgument,
    secret: Annotated[
        str | None, typer.Option(help="New secret: whsec_… or env:HOLDFAST_SINK_NAME. Default: generate one.")
    ] = None,
    keep: Annotated[
        int, typer.Option(min=0, max=4, help="How many previous secrets to keep signing with.")
    ] = 1,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Add a new signing secret. When all receivers use it, rotate again with --keep 0."""
    made = None if secret else new_secret()
    with connected(database_url) as engine:
        count = engine.run(rotate_secret(name, secret or made or "", keep))
    if as_json:
        print_json({"name": name, "secrets": count, "secret": made})
        return
    typer.echo(f"Subscription {visible(name)} is signed with {count_of(count, 'secret')}.")
    if made:
        typer.echo(f"The new secret. Save it now; it cannot be shown again:\n{made}")


def redrive(
    name: NameArgument,
    *,
    event: Annotated[
        UUID | None, typer.Option(metavar="ID", help="Only this event, also if it was delivered.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of events.")] = 1000,
    reason: Reason = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; print how many events would be sent again.")
    ] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Send dead events of a subscription again."""
    with connected(database_url) as engine:
        if not dry_run:
            count = engine.run(redrive_events(name, event, limit, reason=reason))
        elif event is None:
            count = min(limit, _status_of(engine, name).dead)
        else:
            count = engine.run(settled_deliveries(name, event))
    if as_json:
        print_json({"name": name, "redriven": count, "dry_run": dry_run})
    else:
        typer.echo(f"{count_of(count, 'event')} {'would' if dry_run else 'will'} be sent again.")


def list_subscription_deliveries(
    name: NameArgument,
    status: Annotated[
        DeliveryState, typer.Option(help="dead: failed for good; outstanding; or delivered.")
    ] = "dead",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of deliveries.")] = 100,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """List deliveries of a subscription, with their errors."""
    with connected(database_url) as engine:
        found = engine.run(list_deliveries(name, status, limit))
    if as_json:
        print_json({"deliveries": found})
    elif not found:
        typer.echo("No deliveries found.", err=True)
    else:
        columns = (
            "event_id",
            "event_type",
            "subject",
            "status",
            "attempt",
            "due_at",
            "settled_at",
            "last_error",
        )
        print_table([*columns], [[getattr(one, column) for column in columns] for one in found])


def remove(name: NameArgument, database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Remove a subscription. Its pending events are not sent."""
    with connected(database_url) as engine:
        engine.run(unsubscribe(name))
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        typer.echo(f"Subscription {visible(name)} removed.")


def _row(one: OutboxStatus) -> list[Any]:
    states = {"closed": "running", "open": "failing"}
    state = "broken" if one.problem else "paused" if one.paused_at else states.get(one.breaker, "probing")
    events_asked, types = ",".join(one.event_types), ",".join(one.type_prefixes)
    return [
        *(one.name, events_asked, types, one.sink, one.target, one.pending, one.oldest, one.dead, state),
        one.problem or (one.last_error or "").partition("\n")[0][:80],
    ]


def _report(name: str, state: str, *, changed: bool, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "paused": state == "paused", "changed": changed})
    else:
        typer.echo(f"Subscription {visible(name)} {'is' if changed else 'was already'} {state}.")


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
    raise TaskNotFound(f"there is no subscription {name!r}", hint="holdfast events list shows them.")


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
