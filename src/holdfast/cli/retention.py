"""holdfast retention and prune: how long data is kept, and removing expired data."""

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from holdfast._engine import Engine, retention
from holdfast._engine.retention import OLDEST, Prunable
from holdfast._serialization.text import visible
from holdfast.cli.arguments import duration
from holdfast.cli.frame import add_commands, group
from holdfast.cli.report import Report, Table, listing

BATCH = 1000
FOREVER = "forever"


class RetainedData(StrEnum):
    """What a policy can apply to."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"
    DELETED = "deleted"
    HISTORY = "history"
    MESSAGES = "messages"
    STEPS = "steps"


def keep(given: str) -> timedelta | str:
    return FOREVER if given == FOREVER else duration(given)


StatusArgument = Annotated[
    RetainedData,
    typer.Argument(
        metavar="STATUS",
        help="What to keep: tasks by their final status, deleted tasks, history, messages, or steps of runs.",
    ),
]
PrefixOption = Annotated[
    str, typer.Option("--type", metavar="PREFIX", help="Only types that begin with this prefix: billing.")
]


def register(app: typer.Typer) -> None:
    policies = group(app, "retention", "Set how long data is kept.")
    add_commands(policies, list=list_policies, set=set_policy, remove=remove_policy)
    add_commands(app, prune)


def list_policies(engine: Engine) -> Report:
    """List the policies. The longest matching prefix applies."""
    return listing(
        "policies",
        engine.run(retention.retention_policies()),
        "status type_prefix keep changed_at changed_by",
        none="No policies found: all data is kept forever.",
        keep=lambda one: _duration_text(one.keep),
    )


def set_policy(
    engine: Engine,
    status: StatusArgument,
    keep_for: Annotated[
        Any,
        typer.Argument(
            metavar="DURATION", parser=keep, help="How long to keep it after it ended: 12h, 7d, forever."
        ),
    ],
    type_prefix: PrefixOption = "",
) -> Report:
    """Set how long data is kept. The leader removes expired data every minute."""
    kept = None if keep_for == FOREVER else keep_for
    engine.run(retention.set_retention(_prunable(status), kept, type_prefix))
    return Report(
        {"status": status, "type_prefix": type_prefix, "keep": kept},
        f"Policy for {_subject(status, type_prefix)} set: {_duration_text(kept)}.",
    )


def remove_policy(engine: Engine, status: StatusArgument, type_prefix: PrefixOption = "") -> Report:
    """Remove a policy. The policy of the next shorter prefix applies then, or data is kept forever."""
    removed = engine.run(retention.drop_retention(_prunable(status), type_prefix))
    subject = _subject(status, type_prefix)
    return Report(
        {"status": status, "type_prefix": type_prefix, "removed": removed},
        f"Policy for {subject} removed." if removed else f"There is no policy for {subject}.",
    )


def prune(
    engine: Engine,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would be removed, and remove nothing.")
    ] = False,
) -> Report:
    """Remove expired data now. The leader does this every minute anyway."""
    removed: dict[str, int] = dict.fromkeys(RetainedData, 0)
    columns = SpinnerColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        step = progress.add_task("")
        for status in RetainedData:
            for pruned in _steps(engine, _prunable(status), dry_run=dry_run):
                removed[status] += pruned
                progress.update(step, description=f"{status}: {removed[status]}")
    return Report(
        {"pruned": removed, "dry_run": dry_run},
        Table(["status", "would be removed" if dry_run else "removed"], removed.items()),
    )


def _steps(engine: Engine, status: Prunable, *, dry_run: bool) -> Iterator[int]:
    past: UUID | None = OLDEST
    while True:
        step = engine.run(retention.prune(status, BATCH, past, dry_run=dry_run))
        yield step.pruned
        past = step.next
        if past is None and (status != "history" or dry_run or step.pruned < BATCH):
            return


def _prunable(status: RetainedData) -> Prunable:
    return status.value


def _subject(status: RetainedData, type_prefix: str) -> str:
    return f"{status}{f' of {visible(type_prefix)}…' if type_prefix else ''}"


def _duration_text(kept: timedelta | None) -> str:
    if kept is None:
        return FOREVER
    days, rest = divmod(kept.total_seconds(), 86400)
    parts = [f"{days:.0f}d"] if days else []
    for unit, seconds in (("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, seconds)
        parts += [f"{count:.0f}{unit}"] if count else []
    return " ".join(parts)
