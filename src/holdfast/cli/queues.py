"""holdfast queues, pause and resume: show, pause and resume queues."""

from typing import Annotated

import typer

from holdfast.cli.arguments import Reason
from holdfast.cli.connection import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json, print_table, warn_of_unknown
from holdfast.engine import Engine
from holdfast.engine import queues as engine_queues
from holdfast.engine.queues import queue_status
from holdfast.serialization.text import visible

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]


def register(app: typer.Typer) -> None:
    app.command()(queues)
    app.command()(pause)
    app.command()(resume)


def queues(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Show how many tasks wait and run in each queue."""
    with connected(database_url) as engine:
        found = engine.run(queue_status())
    if as_json:
        print_json({"queues": found})
    elif not found:
        typer.echo("No queues found.", err=True)
    else:
        columns = [
            "queue",
            "due",
            "scheduled",
            "running",
            "live_workers",
            "oldest_due",
            "paused_at",
            "paused_by",
        ]
        rows = [[getattr(queue, name) for name in [*columns, "pause_reason"]] for queue in found]
        print_table([*columns, "pause_reason"], rows)


def pause(
    queue: QueueArgument, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Pause a queue: workers claim nothing from it until it is resumed. Running tasks continue."""
    with connected(database_url) as engine:
        known = known_queues(engine)
        changed = engine.run(engine_queues.pause(queue, reason))
    warn_of_unknown("queue", queue, known)
    _report(queue, paused=True, changed=changed, as_json=as_json)


def resume(
    queue: QueueArgument, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Resume a paused queue."""
    with connected(database_url) as engine:
        changed = engine.run(engine_queues.resume(queue, reason))
        known = [queue] if changed else known_queues(engine)
    warn_of_unknown("queue", queue, known)
    if not changed and queue not in known and not as_json:
        return
    _report(queue, paused=False, changed=changed, as_json=as_json)


def known_queues(engine: Engine) -> list[str]:
    return [one.queue for one in engine.run(queue_status())]


def _report(queue: str, *, paused: bool, changed: bool, as_json: bool) -> None:
    if as_json:
        print_json({"queue": queue, "paused": paused, "changed": changed})
        return
    state = "paused" if paused else "running"
    typer.echo(f"Queue {visible(queue)} {'is' if changed else 'was already'} {state}.")
