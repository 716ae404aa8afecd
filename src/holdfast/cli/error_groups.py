"""holdfast errors: groups of errors that differ only in values."""

from typing import Annotated, Any

import typer

from holdfast._engine import Engine, error_groups
from holdfast.cli.arguments import TypeOption, moment, resolve_past
from holdfast.cli.frame import add_commands
from holdfast.cli.report import Note, Report, table


def register(app: typer.Typer) -> None:
    add_commands(app, errors)


def errors(
    *,
    engine: Engine,
    type_prefix: TypeOption = None,
    since: Annotated[
        Any,
        typer.Option(
            parser=moment,
            metavar="TIME|DURATION",
            help="Only errors since this time, or within this duration: 2030-01-31T08:00Z, today, 2h, 7d.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of groups.")] = 20,
) -> Report:
    """List errors of attempts and of steps, by type and message without values, the most frequent first."""
    start = resolve_past(engine, since)
    found = engine.run(error_groups.list_error_groups(start, type_prefix, max_groups=limit))
    if not found:
        return Report({"groups": found}, Note("No errors found."))
    shown = table(
        found,
        "errors ended last_seen type step error group",
        error=lambda one: one.title or one.kind,
        group=lambda one: one.error_group,
    )
    hint = "Tasks of a group: holdfast list --error GROUP. To retry them: holdfast retry --error GROUP"
    since_then = found[0].counted_since
    if since_then is not None:
        hint += f"\nOnly the newest errors are counted, since {since_then:%Y-%m-%d %H:%M:%S}."
    return Report({"groups": found}, shown, Note(f"\n{hint}"))
