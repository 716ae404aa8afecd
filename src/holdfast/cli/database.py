"""The connection that a command works on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import psycopg
import typer
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.engine import Engine
from holdfast.errors import translate
from holdfast.postgres import resolve_database_url
from holdfast.settings import Settings

CONNECT_SECONDS = 10

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Where the work is kept; else DATABASE_URL, else the embedded PostgreSQL."
    ),
]


@contextmanager
def connected(database_url: str | None) -> Iterator[Engine]:
    """The engine on a connection of its own, where each call commits by itself."""
    url = resolve_database_url(Settings.load(database_url=database_url))
    try:
        connection = psycopg.connect(make_conninfo(url, **_defaults(url)), autocommit=True)
    except psycopg.Error as error:
        raise translate(error) from error
    with connection:
        yield Engine(connection)


def _defaults(url: str) -> dict[str, str]:
    """What address and environment leave open. Without a limit, a silent host takes minutes to give up on."""
    limited = "connect_timeout" in conninfo_to_dict(url) or "PGCONNECT_TIMEOUT" in os.environ
    defaults = {"fallback_application_name": "holdfast"}
    return defaults if limited else defaults | {"connect_timeout": str(CONNECT_SECONDS)}
