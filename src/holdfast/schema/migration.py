"""Install or upgrade a database, in one transaction that is tried again when it loses a race."""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from psycopg import IsolationLevel

from holdfast.errors import MigrationRefused, TryAgain, translate
from holdfast.schema.sources import Piece, Sources
from holdfast.schema.steps import Steps

Action = Literal["install", "upgrade", "replay", "nothing"]
Echo = Callable[[str], None]

# With half a second for a lock, a transaction may keep a table for about half a minute before this gives up.
_ATTEMPTS = 20
_LONGEST_PAUSE_SECONDS = 2.0

# Roles belong to all databases of a server, and the lock to one: the migration of another database may create
# the same role, or change the same row of the catalog, at the same time. And where nothing is installed yet,
# there is nothing to lock: of two that install, one finds the roles or schemas of the other.
_MADE_BY_ANOTHER = {
    "23505",  # unique_violation
    "42710",  # duplicate_object
    "42P06",  # duplicate_schema
}
_LOST_RACES = _MADE_BY_ANOTHER | {
    "40001",  # serialization_failure
    "40P01",  # deadlock_detected
    "55P03",  # lock_not_available
}


@dataclass(frozen=True)
class Migration:
    """What was done, or would be."""

    action: Action
    from_version: int
    to_version: int

    def __str__(self) -> str:
        return {
            "install": f"installed version {self.to_version} of the schema",
            "upgrade": f"upgraded the schema from version {self.from_version} to {self.to_version}",
            "replay": f"replayed the functions and views of version {self.to_version}",
            "nothing": f"nothing to do: the schema is at version {self.to_version}",
        }[self.action]


def migrate(
    dsn: str, *, echo: Echo | None = None, force: bool = False, sources: Sources | None = None
) -> Migration:
    """Bring a database to this release. `force` replays functions and views even if they seem unchanged."""
    steps = Steps(sources or Sources(), force)
    say = echo or _say_nothing
    return _persist(dsn, lambda connection: _migrate(connection, steps, say), say)


def plan(dsn: str, *, force: bool = False, sources: Sources | None = None) -> Migration:
    """What `migrate` would do, or why it would refuse. Changes nothing."""
    steps = Steps(sources or Sources(), force)

    def decide_only(connection: psycopg.Connection[Any]) -> Migration:
        found = _decide(connection, steps)
        connection.rollback()
        return found

    return _persist(dsn, decide_only, _say_nothing)


def install_test_clock(dsn: str) -> None:
    """Replace queues.clock() by one that tests may set. Never for a database that matters."""
    with psycopg.connect(dsn, client_encoding="utf-8") as connection:
        _apply(
            connection, [Piece("owner", "set local role holdfast_owner"), Sources().read("testing/clock.sql")]
        )


def _migrate(connection: psycopg.Connection[Any], steps: Steps, say: Echo) -> Migration:
    found = _decide(connection, steps)
    if found.action == "nothing":
        return found
    _apply(connection, steps.preparing)
    if found.action == "install":
        say("creating tables")
        _apply(connection, steps.sources.tables)
    for number, piece in steps.sources.migrations:
        if found.action == "upgrade" and number > found.from_version:
            say(f"applying {piece.name}")
            _apply(connection, [piece])
    say("replaying functions and views")
    _apply(connection, [*steps.making_room, *steps.replaying])
    return found


def _decide(connection: psycopg.Connection[Any], steps: Steps) -> Migration:
    _apply(connection, steps.deciding)
    decided = connection.execute(
        "select current_setting('holdfast.action'), current_setting('holdfast.installed_version')"
    ).fetchone()
    assert decided  # noqa: S101 - a select without from has one row
    return Migration(decided[0], int(decided[1]), steps.sources.version)


def _apply(connection: psycopg.Connection[Any], pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        try:
            connection.execute(piece.sql.encode())
        except psycopg.Error as error:
            error.add_note(piece.name)
            raise


def _persist(dsn: str, work: Callable[[psycopg.Connection[Any]], Migration], say: Echo) -> Migration:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with _connect(dsn) as connection:
                return work(connection)
        except psycopg.Error as error:
            if attempt == _ATTEMPTS or not _lost_race(error):
                raise _explain(error) from error
            say(f"{_reason(error)}: trying again ({attempt} of {_ATTEMPTS})")
        longest = min(_LONGEST_PAUSE_SECONDS, 0.1 * 2**attempt)
        time.sleep(random.uniform(0, longest))  # noqa: S311 - jitter is not a secret
    raise AssertionError("the last attempt returns or raises")


def _connect(dsn: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(dsn, client_encoding="utf-8", application_name="holdfast migrate")
    # The wait for another migration has to see what its last holder has committed.
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    connection.read_only = False
    return connection


def _lost_race(error: psycopg.Error) -> bool:
    return error.sqlstate in _LOST_RACES or "tuple concurrently" in str(error)


def _reason(error: psycopg.Error) -> str:
    if error.sqlstate in _MADE_BY_ANOTHER:
        return "another migration has just made the same roles or schemas"
    return error.diag.message_primary or str(error)


def _explain(error: psycopg.Error) -> Exception:
    message = error.diag.message_primary or str(error).strip()
    if error.sqlstate == "P0001":  # raised on purpose by the files in install/, and by roles.sql
        return MigrationRefused(message)
    if error.sqlstate is None or error.sqlstate.startswith(("08", "28", "3D", "57")):
        return translate(error)
    where = "".join(getattr(error, "__notes__", []))
    if _lost_race(error):
        hint = "Find the transaction in its way with pg_stat_activity, and migrate again."
        return TryAgain(f"{where}: {message}, {_ATTEMPTS} times. Nothing was changed", hint=hint)
    detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
    return MigrationRefused(f"{where}: {message}{detail}. Nothing was changed.")


def _say_nothing(line: str) -> None:
    del line
