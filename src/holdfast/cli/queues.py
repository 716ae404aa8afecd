"""holdfast queues, pause and resume."""

from typing import Annotated

import typer

from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json, print_table
from holdfast.cli.task_actions import Reason
from holdfast.engine import queues as engine_queues
from holdfast.engine.queues import queue_status
from holdfast.serialization.text import visible

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE")]


def register(app: typer.Typer) -> None:
    app.command()(queues)
    app.command()(pause)
    app.command()(resume)


def queues(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Show what waits and what runs, per queue."""
    with connected(database_url) as engine:
        found = engine.run(queue_status())
    if as_json:
        print_json({"queues": found})
    elif not found:
        typer.echo("There is no queue yet.", err=True)
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
    """Let nothing be claimed from a queue until it is resumed. What runs goes on."""
    with connected(database_url) as engine:
        changed = engine.run(engine_queues.pause(queue, reason))
    _tell(queue, paused=True, changed=changed, as_json=as_json)


def resume(
    queue: QueueArgument, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Let a paused queue go on."""
    with connected(database_url) as engine:
        changed = engine.run(engine_queues.resume(queue, reason))
    _tell(queue, paused=False, changed=changed, as_json=as_json)


def _tell(queue: str, *, paused: bool, changed: bool, as_json: bool) -> None:
    if as_json:
        print_json({"queue": queue, "paused": paused, "changed": changed})
        return
    state = "paused" if paused else "running"
    typer.echo(f"Queue {visible(queue)} {'is' if changed else 'was already'} {state}.")
