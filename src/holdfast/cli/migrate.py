"""holdfast migrate: install or upgrade the database schema."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from holdfast.cli.frame import Json
from holdfast.errors import ConfigurationError
from holdfast.postgres import resolve_database_url
from holdfast.schema import Migration, migrate, plan, script
from holdfast.settings import Settings
from holdfast.shards.migration import migrate_shards, plan_shards

PENDING = 1

Sql = Annotated[bool, typer.Option("--sql", help="Print a script for psql and change nothing.")]
Check = Annotated[bool, typer.Option("--check", help="Report what would be done and change nothing.")]
Force = Annotated[
    bool, typer.Option("--force", help="Replace functions and views even if they are unchanged.")
]
SingleLogin = Annotated[
    bool,
    typer.Option(
        "--single-login",
        help="Install without roles: this login owns everything, and no other login gets any right.",
    ),
]

_PENDING = {
    "install": "pending: install version {to_version} of the schema",
    "upgrade": "pending: upgrade the schema from version {from_version} to {to_version}",
    "replay": "pending: replace the functions and views of version {to_version}",
}


def register(app: typer.Typer) -> None:
    app.command("migrate")(migrate_database)


def migrate_database(
    sql: Sql = False,
    check: Check = False,
    force: Force = False,
    single_login: SingleLogin = False,
    as_json: Json = False,
) -> None:
    """Install the schema or upgrade it to this release. Safe to run at any time, also concurrently.

    Exit code: 0 if done or nothing to do, 1 if --check finds a pending migration, 3 if refused.
    """
    settings = Settings.load()
    single = single_login or settings.single_login
    if single and settings.shards:
        raise ConfigurationError("shards need roles: leave out --single-login and HOLDFAST_SINGLE_LOGIN")
    if settings.shards and not sql:
        _migrate_shards(settings, check=check, force=force, as_json=as_json)
    elif sql:
        typer.echo(script(single_login=single), nl=False)
    elif check:
        found = plan(resolve_database_url(settings), force=force, single_login=single)
        _show(found, _PENDING.get(found.action, str(found)).format_map(asdict(found)), as_json)
        raise typer.Exit(0 if found.action == "nothing" else PENDING)
    else:
        done = migrate(resolve_database_url(settings), echo=_say, force=force, single_login=single)
        _show(done, str(done), as_json)


def _migrate_shards(settings: Settings, *, check: bool, force: bool, as_json: bool) -> None:
    if check:
        planned = plan_shards(settings.database_url, settings.shards, force=force)
        if as_json:
            typer.echo(json.dumps(asdict(planned)))
        else:
            for name, one in planned.shards.items():
                typer.echo(f"{name}: {_PENDING.get(one.action, str(one)).format_map(asdict(one))}")
            typer.echo("front: pending: generate" if planned.front else "front: nothing to do")
        raise typer.Exit(PENDING if planned.changed else 0)
    done = migrate_shards(settings.database_url, settings.shards, echo=_say, force=force)
    typer.echo(json.dumps(asdict(done)) if as_json else str(done))


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _show(migration: Migration, text: str, as_json: bool) -> None:
    typer.echo(json.dumps(asdict(migration)) if as_json else text)
