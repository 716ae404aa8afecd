"""The database connection of a command."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Annotated, Any
from uuid import UUID

import psycopg
import typer

from holdfast._connections.pool import LimitedConnection, open_connection
from holdfast._connections.session import DatabaseAddress, facts_of
from holdfast._engine import Engine
from holdfast._engine.shards import list_shards, name_of_shard
from holdfast._install.postgres.database_url import resolve_database_url
from holdfast._serialization.text import visible
from holdfast.errors import HoldfastError
from holdfast.settings import Settings

DatabaseUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The database. Default: DATABASE_URL, or else the embedded PostgreSQL."),
]


def address_of(database_url: str | None) -> DatabaseAddress:
    return DatabaseAddress(lambda: resolve_database_url(Settings.load(database_url=database_url)))


@contextmanager
def connected(database_url: str | None) -> Iterator[Engine]:
    """Give an engine that connects at its first statement, in autocommit: each statement commits by itself.

    Which database was used without being named is said only if the command fails.
    """
    said: list[str] = []
    try:
        with ExitStack() as opened:
            yield _ConnectingEngine(lambda: opened.enter_context(_open(database_url, said.append)))
    except HoldfastError:
        for line in said[:1]:
            typer.echo(line, err=True)
        raise


class _ConnectingEngine(Engine):
    """Connects when it is first used, after the command has checked its arguments."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect

    @cached_property
    def connection(self) -> psycopg.Connection[Any]:  # type: ignore[override] # never set by others
        return self._connect()


def _open(database_url: str | None, say: Callable[[str], None]) -> LimitedConnection:
    settings = Settings.load(database_url=database_url)
    connection = open_connection(DatabaseAddress(lambda: resolve_database_url(settings, say)))
    if facts_of(connection).is_front:
        # It waits for a shard that hangs for as long as we do.
        connection.reply_seconds = settings.call_timeout.total_seconds()
        # A list shows what the other shards have, and a warning says what is missing.
        connection.execute("select set_config('holdfast.partial', 'on', false)")
        connection.add_notice_handler(_print_warning)
    return connection


def shard_names(engine: Engine) -> list[str]:
    """The names of the shards by their numbers, or none if this is not a front."""
    if not facts_of(engine.connection).is_front:
        return []
    return [shard.shard_name for shard in engine.run(list_shards())]


def shard_field(task_id: UUID, names: list[str]) -> dict[str, str]:
    """The shard of a task as a field to show. Without shards, there is no such field."""
    name = name_of_shard(task_id, names)
    return {} if name is None else {"shard": name}


def _print_warning(notice: psycopg.errors.Diagnostic) -> None:
    if notice.severity_nonlocalized == "WARNING" and notice.message_primary:
        typer.echo(f"holdfast: {visible(notice.message_primary)}", err=True)
