"""holdfast shards: the state of the shards, and what differs between them."""

import psycopg
import typer

from holdfast._connections.session import facts_of
from holdfast._engine import Engine
from holdfast.cli.connection import DatabaseUrl, address_of, connected
from holdfast.cli.frame import add_commands, group
from holdfast.cli.report import Report, table
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings
from holdfast.shards.check import check_shards
from holdfast.shards.migration import migrate_shards
from holdfast.shards.status import front_status


def register(app: typer.Typer) -> None:
    add_commands(group(app, "shards", "Show and check the shards behind a front."), status, check, add)


def status(database_url: DatabaseUrl = None) -> Report:
    """List the shards, and whether the front reaches them. Exit code: 0, or 2 if one is lost."""
    with connected(database_url) as engine:
        _require_front(engine)
    found = front_status(address_of(database_url))
    shown = table(
        found,
        "shard number state address problem",
        shard=lambda one: one.shard_name,
        number=lambda one: one.shard_number,
        state=lambda one: "reached" if one.reached else "lost",
    )
    return Report({"shards": found}, shown, exit_code=0 if all(one.reached for one in found) else 2)


def check() -> Report:
    """Compare the front and the shards with the settings, and the shards with each other.

    Exit code: 0, or 1 if something differs. Connects to every shard of HOLDFAST_SHARDS, as an administrator.
    """
    settings = _settings()
    found = check_shards(settings.database_url, settings.shards)
    alike = f"{len(settings.shards)} shards, all alike"
    shown = table(found, "shard what difference") if found else alike
    return Report({"differences": found}, shown, exit_code=1 if found else 0)


def add() -> Report:
    """Install the shards at the end of HOLDFAST_SHARDS that are new, and add them to the front.

    They get tasks without a key. Keys stay on the first shards, so that none is used twice.
    """
    settings = _settings()
    done = migrate_shards(settings.database_url, settings.shards, add=True)
    return Report(done, done)


def _settings() -> Settings:
    settings = Settings.load()
    if not settings.shards:
        raise ConfigurationError("there are no shards: HOLDFAST_SHARDS is not set")
    return settings


def _require_front(engine: Engine) -> None:
    connection = engine.connection
    assert isinstance(connection, psycopg.Connection)  # noqa: S101 - commands are synchronous
    if not facts_of(connection).is_front:
        raise ConfigurationError(
            "this database is not a front", hint="Set DATABASE_URL to the address of the front."
        )
