"""holdfast retention and prune: how long what is kept, and removing what is not."""

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from holdfast.cli.arguments import duration
from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json, print_table
from holdfast.engine import Engine, retention
from holdfast.engine.retention import Prunable
from holdfast.serialization.text import visible

BATCH = 1000
FOREVER = "forever"


class Kept(StrEnum):
    """What there are policies for."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"
    DELETED = "deleted"
    HISTORY = "history"
    MESSAGES = "messages"


def keep(given: str) -> timedelta | str:
    return FOREVER if given == FOREVER else duration(given)


StatusArgument = Annotated[
    Kept, typer.Argument(metavar="STATUS", help="How tasks ended, or deleted; or history, or messages.")
]
PrefixOption = Annotated[
    str, typer.Option("--type", metavar="PREFIX", help="Only types that begin so: billing.")
]

commands = typer.Typer(help="How long what is kept.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="retention")
    app.command()(prune)


@commands.command("list")
def list_policies(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Show the policies. Of several prefixes that fit a type, the longest decides."""
    with connected(database_url) as engine:
        found = engine.run(retention.retention_policies())
    if as_json:
        print_json({"policies": found})
    elif not found:
        typer.echo("There is no policy: everything is kept for ever.", err=True)
    else:
        columns = ["status", "type_prefix", "keep", "changed_at", "changed_by"]
        print_table(
            columns,
            [[one.status, one.type_prefix, _told(one.keep), one.changed_at, one.changed_by] for one in found],
        )


@commands.command("set")
def set_policy(
    status: StatusArgument,
    keep_for: Annotated[
        Any,
        typer.Argument(metavar="DURATION", parser=keep, help="From the end on: 12h, 7d, forever."),
    ],
    type_prefix: PrefixOption = "",
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Say how long tasks are kept that ended so. The leader of the fleet removes the rest."""
    kept = None if keep_for == FOREVER else keep_for
    with connected(database_url) as engine:
        engine.run(retention.set_retention(_prunable(status), kept, type_prefix))
    if as_json:
        print_json({"status": status, "type_prefix": type_prefix, "keep": kept})
        return
    typer.echo(f"{_subject(status, type_prefix)} is kept {_told(kept)}.")


@commands.command("remove")
def remove_policy(
    status: StatusArgument,
    type_prefix: PrefixOption = "",
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Remove a policy. The one of the next shorter prefix decides then; without one, all is kept for ever."""
    with connected(database_url) as engine:
        removed = engine.run(retention.drop_retention(_prunable(status), type_prefix))
    if as_json:
        print_json({"status": status, "type_prefix": type_prefix, "removed": removed})
    else:
        typer.echo(f"{'Removed' if removed else 'There was no policy'} for {_subject(status, type_prefix)}.")


def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would go, and remove nothing.")
    ] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Remove now what the policies no longer keep. The leader of the fleet does it anyway, every minute."""
    removed: dict[str, int] = dict.fromkeys(Kept, 0)
    console = Console(stderr=True)
    with (
        connected(database_url) as engine,
        Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True) as shown,
    ):
        under_way = shown.add_task("")
        for status in Kept:
            for pruned in _steps(engine, _prunable(status), dry_run=dry_run):
                removed[status] += pruned
                shown.update(under_way, description=f"{status}: {removed[status]}")
    if as_json:
        print_json({"pruned": removed, "dry_run": dry_run})
        return
    print_table(["status", "would go" if dry_run else "removed"], removed.items())


def _steps(engine: Engine, status: Prunable, *, dry_run: bool) -> Iterator[int]:
    past = None
    while True:
        step = engine.run(retention.prune(status, BATCH, past, dry_run=dry_run))
        yield step.pruned
        past = step.next
        if past is None and (status != "history" or dry_run or step.pruned < BATCH):
            return


def _prunable(status: Kept) -> Prunable:
    return status.value


def _subject(status: Kept, type_prefix: str) -> str:
    return f"{status}{f' of {visible(type_prefix)}…' if type_prefix else ''}"


def _told(kept: timedelta | None) -> str:
    if kept is None:
        return FOREVER
    days, rest = divmod(kept.total_seconds(), 86400)
    parts = [f"{days:.0f}d"] if days else []
    for unit, seconds in (("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, seconds)
        parts += [f"{count:.0f}{unit}"] if count else []
    return " ".join(parts)
