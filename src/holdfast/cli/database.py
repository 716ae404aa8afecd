"""The database connection of a command."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeVar

import psycopg
import typer
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.engine import Engine, Statement
from holdfast.errors import translate
from holdfast.postgres import resolve_database_url
from holdfast.settings import Settings

CONNECT_SECONDS = 10

T = TypeVar("T")

DatabaseUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The database. Default: DATABASE_URL, or else the embedded PostgreSQL."),
]


@contextmanager
def connected(database_url: str | None) -> Iterator[Engine]:
    """Open a connection in autocommit mode: every statement commits by itself."""
    url = resolve_database_url(Settings.load(database_url=database_url))
    try:
        connection = psycopg.connect(make_conninfo(url, **_defaults(url)), autocommit=True)
    except psycopg.Error as error:
        raise translate(error) from error
    with connection:
        yield Engine(connection)


def run_statement(database_url: str | None, statement: Statement[T]) -> T:
    """Run a single statement on its own connection."""
    with connected(database_url) as engine:
        return engine.run(statement)


def _defaults(url: str) -> dict[str, str]:
    """Defaults for what the URL and the environment leave open. Without a timeout, an unreachable host would
    block for minutes.
    """
    limited = "connect_timeout" in conninfo_to_dict(url) or "PGCONNECT_TIMEOUT" in os.environ
    defaults = {"fallback_application_name": "holdfast"}
    return defaults if limited else defaults | {"connect_timeout": str(CONNECT_SECONDS)}
