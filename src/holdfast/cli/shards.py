"""holdfast shards: the state of the shards, and what differs between them."""

import psycopg
import typer

from holdfast.cli.connection import DatabaseUrl, address_of, connected
from holdfast.cli.output import Json, print_json, print_table
from holdfast.connections.session import is_front
from holdfast.engine import Engine
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings
from holdfast.shards.check import check_shards
from holdfast.shards.migration import migrate_shards
from holdfast.shards.status import front_status

shards_app = typer.Typer(no_args_is_help=True, help="Show and check the shards behind a front.")


def register(app: typer.Typer) -> None:
    app.add_typer(shards_app, name="shards")


@shards_app.command("status")
def status(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """List the shards, and whether the front reaches them. Exit code: 0, or 2 if one is lost."""
    with connected(database_url) as engine:
        _require_front(engine)
    found = front_status(address_of(database_url))
    if as_json:
        print_json({"shards": found})
    else:
        print_table(
            ["shard", "number", "state", "address", "problem"],
            [
                [
                    one.shard_name,
                    one.shard_number,
                    "reached" if one.reached else "lost",
                    one.address,
                    one.problem or "",
                ]
                for one in found
            ],
        )
    raise typer.Exit(0 if all(one.reached for one in found) else 2)


@shards_app.command("check")
def check(as_json: Json = False) -> None:
    """Compare the front and the shards with the settings, and the shards with each other.

    Exit code: 0, or 1 if something differs. Connects to every shard of HOLDFAST_SHARDS, as an administrator.
    """
    settings = Settings.load()
    if not settings.shards:
        raise ConfigurationError("there are no shards: HOLDFAST_SHARDS is not set")
    found = check_shards(settings.database_url, settings.shards)
    if as_json:
        print_json({"differences": found})
    elif found:
        print_table(["shard", "what", "difference"], [[one.shard, one.what, one.difference] for one in found])
    else:
        typer.echo(f"{len(settings.shards)} shards, all alike")
    raise typer.Exit(1 if found else 0)


@shards_app.command("add")
def add(as_json: Json = False) -> None:
    """Install the shards at the end of HOLDFAST_SHARDS that are new, and add them to the front.

    They get tasks without a key. Keys stay on the first shards, so that none is used twice.
    """
    settings = Settings.load()
    if not settings.shards:
        raise ConfigurationError("there are no shards: HOLDFAST_SHARDS is not set")
    done = migrate_shards(settings.database_url, settings.shards, add=True)
    if as_json:
        print_json(done)
    else:
        typer.echo(str(done))


def _require_front(engine: Engine) -> None:
    connection = engine.connection
    assert isinstance(connection, psycopg.Connection)  # noqa: S101 - commands are synchronous
    if not is_front(connection):
        raise ConfigurationError(
            "this database is not a front", hint="Set DATABASE_URL to the address of the front."
        )
