"""holdfast migrate: bring the database to this release."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from holdfast.postgres import resolve_database_url
from holdfast.schema import Migration, migrate, plan, script
from holdfast.settings import Settings

SOMETHING_TO_DO = 1

Sql = Annotated[bool, typer.Option("--sql", help="Print a script for psql, and change nothing.")]
Check = Annotated[bool, typer.Option("--check", help="Say what is to do, and change nothing.")]
Force = Annotated[
    bool, typer.Option("--force", help="Replay functions and views even if they seem unchanged.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

_TO_DO = {
    "install": "to do: install version {to_version} of the schema",
    "upgrade": "to do: upgrade the schema from version {from_version} to {to_version}",
    "replay": "to do: replay the functions and views of version {to_version}",
}


def register(app: typer.Typer) -> None:
    app.command("migrate")(migrate_database)


def migrate_database(
    sql: Sql = False, check: Check = False, force: Force = False, as_json: Json = False
) -> None:
    """Install the schema, or upgrade it to this release. It may be run at any time, by any number at once.

    Exit code 0: done, or nothing to do. 1: with --check, something is to do. 3: refused, nothing was changed.
    """
    if sql:
        typer.echo(script(), nl=False)
    elif check:
        found = plan(resolve_database_url(Settings.load()), force=force)
        _show(found, _TO_DO.get(found.action, str(found)).format_map(asdict(found)), as_json)
        raise typer.Exit(0 if found.action == "nothing" else SOMETHING_TO_DO)
    else:
        done = migrate(resolve_database_url(Settings.load()), echo=_say, force=force)
        _show(done, str(done), as_json)


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _show(migration: Migration, text: str, as_json: bool) -> None:
    typer.echo(json.dumps(asdict(migration)) if as_json else text)
