"""holdfast migrate: install or upgrade the database schema."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from holdfast._install.postgres.database_url import resolve_database_url
from holdfast._install.schema import Choice, Migration, migrate, plan, script
from holdfast.cli.frame import Json
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings
from holdfast.settings.values import split_names
from holdfast.shards.migration import migrate_shards, plan_shards
from holdfast.sql.optional_units import NAMES

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
_HELP = "messages, events or web. Repeat it, or separate names by commas."
With = Annotated[
    list[str] | None,
    typer.Option("--with", help=f"Add a unit that is not installed: {_HELP}", autocompletion=lambda: NAMES),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without", help=f"Leave a unit out of a new database: {_HELP}", autocompletion=lambda: NAMES
    ),
]


def register(app: typer.Typer) -> None:
    app.command("migrate")(migrate_database)


def migrate_database(
    *,
    sql: Sql = False,
    check: Check = False,
    force: Force = False,
    single_login: SingleLogin = False,
    with_units: With = None,
    without_units: Without = None,
    as_json: Json = False,
) -> None:
    """Install the schema or upgrade it to this release. Safe to run at any time, also concurrently.

    Installs all units, unless some are left out of a new database. It keeps those that it has.
    Exit code: 0 if done or nothing to do, 1 if --check finds a pending migration, 3 if refused.
    """
    settings = Settings.load()
    single = single_login or settings.single_login
    choice = _choice(with_units, without_units, settings)
    if single and settings.shards:
        raise ConfigurationError("shards need roles: leave out --single-login and HOLDFAST_SINGLE_LOGIN")
    if settings.shards and not sql:
        _migrate_shards(settings, choice, check=check, force=force, as_json=as_json)
    elif sql:
        typer.echo(script(single_login=single, choice=choice), nl=False)
    elif check:
        found = plan(resolve_database_url(settings), force=force, single_login=single, choice=choice)
        _show(found, found.pending, as_json)
        raise typer.Exit(0 if found.action == "nothing" else PENDING)
    else:
        url = resolve_database_url(settings)
        done = migrate(url, echo=_say, force=force, single_login=single, choice=choice)
        _show(done, str(done), as_json)


def _choice(given: list[str] | None, left_out: list[str] | None, settings: Settings) -> Choice:
    """A unit that is asked for by name is installed, whatever the settings leave out."""
    wanted = frozenset(name for one in given or () for name in split_names(one))
    if left_out:
        return Choice(wanted, frozenset(name for one in left_out for name in split_names(one)))
    return Choice(wanted, frozenset(settings.without) - wanted)


def _migrate_shards(settings: Settings, choice: Choice, *, check: bool, force: bool, as_json: bool) -> None:
    front, shards = settings.database_url, settings.shards
    if check:
        planned = plan_shards(front, shards, force=force, choice=choice)
        if as_json:
            typer.echo(json.dumps(asdict(planned)))
        else:
            for name, one in planned.shards.items():
                typer.echo(f"{name}: {one.pending}")
            typer.echo("front: pending: generate" if planned.front else "front: nothing to do")
        raise typer.Exit(PENDING if planned.changed else 0)
    done = migrate_shards(front, shards, echo=_say, force=force, choice=choice)
    typer.echo(json.dumps(asdict(done)) if as_json else str(done))


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _show(migration: Migration, text: str, as_json: bool) -> None:
    typer.echo(json.dumps(asdict(migration)) if as_json else text)
