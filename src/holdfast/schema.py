"""Install the engine's SQL into a database."""

from collections.abc import Iterator
from pathlib import Path

import psycopg

_SQL = Path(__file__).parent / "sql"

# Functions here return the rows of a view, so they come after the views; views call the other functions.
_AFTER_VIEWS = "functions/listing"


def _pieces() -> Iterator[Path]:
    functions = sorted(_SQL.glob("functions/*/*.sql"))
    listing = [path for path in functions if path.parent == _SQL / _AFTER_VIEWS]
    yield from sorted(_SQL.glob("schema/*.sql"))
    yield from (path for path in functions if path not in listing)
    yield from sorted(_SQL.glob("views/*.sql"))
    yield from listing
    yield _SQL / "grants.sql"


def migrate(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        for name in ("roles.sql", "schemas.sql"):
            _run(connection, _SQL / name)
        connection.execute("set local role holdfast_owner")
        connection.execute("set local check_function_bodies = off")
        for path in _pieces():
            _run(connection, path)


def install_test_clock(dsn: str) -> None:
    """Replace queues.clock() by one that tests may set. Never for a database that matters."""
    with psycopg.connect(dsn) as connection:
        connection.execute("set local role holdfast_owner")
        _run(connection, _SQL / "testing" / "clock.sql")


def _run(connection: psycopg.Connection[tuple[object, ...]], path: Path) -> None:
    connection.execute(path.read_bytes())
