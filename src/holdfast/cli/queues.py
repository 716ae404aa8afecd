"""holdfast queues, pause and resume: show, pause and resume queues."""

from typing import Annotated

import typer

from holdfast._engine import Engine
from holdfast._engine import queues as engine_queues
from holdfast._engine.queues import queue_status
from holdfast.cli.arguments import Reason
from holdfast.cli.frame import add_commands
from holdfast.cli.output import warn_of_unknown
from holdfast.cli.report import Report, listing, pause_change

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
_COLUMNS = "queue due scheduled running live_workers oldest_due paused_at paused_by pause_reason"


def register(app: typer.Typer) -> None:
    add_commands(app, queues, pause, resume)


def queues(engine: Engine) -> Report:
    """Show how many tasks wait and run in each queue."""
    return listing("queues", engine.run(queue_status()), _COLUMNS)


def pause(engine: Engine, queue: QueueArgument, reason: Reason = None) -> Report:
    """Pause a queue: workers claim nothing from it until it is resumed. Running tasks continue."""
    known = known_queues(engine)
    changed = engine.run(engine_queues.pause(queue, reason))
    warn_of_unknown("queue", queue, known)
    return pause_change("queue", queue, paused=True, changed=changed, key="queue")


def resume(engine: Engine, queue: QueueArgument, reason: Reason = None) -> Report:
    """Resume a paused queue."""
    changed = engine.run(engine_queues.resume(queue, reason))
    known = [queue] if changed else known_queues(engine)
    warn_of_unknown("queue", queue, known)
    report = pause_change("queue", queue, paused=False, changed=changed, key="queue")
    return report if queue in known else Report(report.document)  # the warning says it


def known_queues(engine: Engine) -> list[str]:
    return [one.queue for one in engine.run(queue_status())]
