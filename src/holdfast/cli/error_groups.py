"""holdfast errors: groups of errors that differ only in values."""

from typing import Annotated, Any

import typer

from holdfast.cli.arguments import TypeOption, moment, resolve_past
from holdfast.cli.connection import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json, print_table
from holdfast.engine import error_groups


def register(app: typer.Typer) -> None:
    app.command()(errors)


def errors(
    *,
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
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """List errors of attempts and of steps, by type and message without values, the most frequent first."""
    with connected(database_url) as engine:
        start = resolve_past(engine, since)
        found = engine.run(error_groups.list_error_groups(start, type_prefix, max_groups=limit))
    if as_json:
        print_json({"groups": found})
        return
    if not found:
        typer.echo("No errors found.", err=True)
        return
    print_table(
        ["errors", "ended", "last_seen", "type", "step", "error", "group"],
        [
            (one.errors, one.ended, one.last_seen, one.type, one.step, one.title or one.kind, one.error_group)
            for one in found
        ],
    )
    typer.echo(
        "\nTasks of a group: holdfast list --error GROUP. To retry them: holdfast retry --error GROUP",
        err=True,
    )
