"""Installs or upgrades a database in one transaction, which is retried after conflicts."""

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import psycopg
from psycopg import IsolationLevel

from holdfast._install.schema.migration_steps import Choice, MigrationSteps
from holdfast._install.schema.sources import Sources, SqlPiece
from holdfast.errors import MigrationRefused, TransactionConflict, translate
from holdfast.sql import optional_units

Action = Literal["install", "upgrade", "replay", "nothing"]
Echo = Callable[[str], None]
T = TypeVar("T")

# Each attempt waits half a second for a lock, so a transaction may block a migration for about half a minute.
_MAX_ATTEMPTS = 20
_MAX_PAUSE_SECONDS = 2.0

# Roles belong to the whole server, but the lock to one database: the migration of another database may create
# the same role or change the same catalog row at the same time. An empty database has nothing to lock: of two
# installations, one finds the roles or schemas of the other.
_CREATED_CONCURRENTLY = {
    "23505",  # unique_violation
    "42710",  # duplicate_object
    "42P06",  # duplicate_schema
}
_CONFLICTS = _CREATED_CONCURRENTLY | {
    "40001",  # serialization_failure
    "40P01",  # deadlock_detected
    "55P03",  # lock_not_available
}
_BECOME_OWNER = """
select set_config('role', pg_get_userbyid(n.nspowner), true) from pg_namespace n where n.nspname = 'queues'
"""
_OWN_SINGLE_LOGIN = """
select pg_get_userbyid(n.nspowner) = current_user and current_user <> 'holdfast_owner'
  and not (select r.rolsuper from pg_roles r where r.rolname = current_user)
  and exists (
    select from pg_class c
    where c.relnamespace = n.oid and c.relname = 'installation' and c.relowner = n.nspowner)
from pg_namespace n where n.nspname = 'queues'
"""
_DECIDED = """
select current_setting('holdfast.action'), current_setting('holdfast.installed_version'),
  current_setting('holdfast.units')::text[], current_setting('holdfast.added')::text[]
"""


@dataclass(frozen=True)
class Migration:
    """What a migration did, or would do."""

    action: Action
    from_version: int
    to_version: int
    single_login: bool = False
    """Whether the login that migrates owns everything itself, and there are no roles."""
    added: tuple[str, ...] = ()
    """The units that an installed database did not have before."""
    missing: tuple[str, ...] = ()
    """The units that it does without."""

    def __str__(self) -> str:
        return self._told(
            {
                "install": f"installed version {self.to_version} of the schema",
                "upgrade": f"upgraded the schema from version {self.from_version} to {self.to_version}",
                "add": f"added {_listed(self.added)} to version {self.to_version} of the schema",
                "replay": f"replaced the functions and views of version {self.to_version}",
            }
        )

    @property
    def pending(self) -> str:
        """The same as what is still to be done."""
        return self._told(
            {
                "install": f"pending: install version {self.to_version} of the schema",
                "upgrade": f"pending: upgrade the schema from version {self.from_version} "
                f"to {self.to_version}",
                "add": f"pending: add {_listed(self.added)} to version {self.to_version} of the schema",
                "replay": f"pending: replace the functions and views of version {self.to_version}",
            }
        )

    def _told(self, words: Mapping[str, str]) -> str:
        action = "add" if self.added and self.action == "replay" else self.action
        said = words.get(action, f"nothing to do: the schema is at version {self.to_version}")
        more = f", and {words['add'].split(' to ')[0]}" if self.added and action == "upgrade" else ""
        without = f", without {_listed(self.missing)}" if self.missing else ""
        return f"{said}{more}{without}{', for a single login' if self.single_login else ''}"


def migrate(
    dsn: str,
    *,
    echo: Echo | None = None,
    force: bool = False,
    single_login: bool = False,
    choice: Choice | None = None,
    sources: Sources | None = None,
) -> Migration:
    """Install or upgrade a database. `force` replaces functions and views even if they are unchanged.

    `single_login` installs without roles. An installed database stays as it is, with or without them. It
    also keeps its units: a choice may only add some, or leave some out of a new database.
    """
    steps = MigrationSteps(sources or Sources(), force, single_login, choice or Choice())
    say = echo or _say_nothing
    return _retry_conflicts(dsn, lambda connection: _migrate(connection, steps, say), say)


def plan(
    dsn: str,
    *,
    force: bool = False,
    single_login: bool = False,
    choice: Choice | None = None,
    sources: Sources | None = None,
) -> Migration:
    """Return what `migrate` would do, or raise its error. Changes nothing."""
    steps = MigrationSteps(sources or Sources(), force, single_login, choice or Choice())

    def decide_only(connection: psycopg.Connection[Any]) -> Migration:
        found = _decide(connection, _as_installed(connection, steps))
        connection.rollback()
        return found

    return _retry_conflicts(dsn, decide_only, _say_nothing)


def install_test_clock(dsn: str) -> None:
    """Replace queues.clock() with a clock that tests can set. Never use it in production."""
    with psycopg.connect(dsn, client_encoding="utf-8") as connection:
        become_owner(connection)
        _apply(connection, [Sources().read("testing/clock.sql")])


def become_owner(connection: psycopg.Connection[Any]) -> None:
    """Act as the owner of the schema until the end of the transaction."""
    connection.execute(_BECOME_OWNER)


def in_transaction(dsn: str, work: Callable[[psycopg.Connection[Any]], T]) -> T:
    """Run a further step of a migration. It is retried after conflicts, and its refusals are explained."""
    return _retry_conflicts(dsn, work, _say_nothing)


def _migrate(connection: psycopg.Connection[Any], wanted: MigrationSteps, say: Echo) -> Migration:
    steps = _as_installed(connection, wanted)
    found = _decide(connection, steps)
    if found.action == "nothing":
        return found
    announced: str | None = None
    for step in steps.applying:
        if not step.pieces or not _holds(connection, step.condition):
            continue
        if step.announced not in (None, announced):
            say(announced := step.announced)
        _apply(connection, step.pieces)
    return found


def _holds(connection: psycopg.Connection[Any], condition: str | None) -> bool:
    return condition is None or connection.execute(f"select {condition}".encode()).fetchone() == (True,)


def _as_installed(connection: psycopg.Connection[Any], steps: MigrationSteps) -> MigrationSteps:
    """A database that this login has installed for itself alone stays that way without being asked for it."""
    row = connection.execute(_OWN_SINGLE_LOGIN).fetchone()
    return replace(steps, single_login=True) if row and row[0] else steps


def _decide(connection: psycopg.Connection[Any], steps: MigrationSteps) -> Migration:
    _apply(connection, steps.deciding)
    decided = connection.execute(_DECIDED).fetchone()
    assert decided  # noqa: S101 - a select without from returns one row
    action, version, here, new = decided
    added = tuple(unit for unit in optional_units.NAMES if unit in new and action != "install")
    missing = tuple(part.unit for part in steps.sources.units if part.unit not in here)
    return Migration(action, int(version), steps.sources.version, steps.single_login, added, missing)


def _apply(connection: psycopg.Connection[Any], pieces: Iterable[SqlPiece]) -> None:
    for piece in pieces:
        try:
            connection.execute(piece.sql.encode())
        except psycopg.Error as error:
            error.add_note(piece.name)
            raise


def _retry_conflicts(dsn: str, work: Callable[[psycopg.Connection[Any]], T], say: Echo) -> T:
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        try:
            with _connect(dsn) as connection:
                return work(connection)
        except psycopg.Error as error:
            if attempt == _MAX_ATTEMPTS or not _is_conflict(error):
                raise _explain(error) from error
            say(f"{_reason(error)}: trying again ({attempt} of {_MAX_ATTEMPTS})")
        longest = min(_MAX_PAUSE_SECONDS, 0.1 * 2**attempt)
        time.sleep(random.uniform(0, longest))  # noqa: S311 - jitter is not a secret
    raise AssertionError("the last attempt returns or raises")


def _connect(dsn: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(dsn, client_encoding="utf-8", application_name="holdfast migrate")
    # After waiting for another migration, this one must see what it has committed.
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    connection.read_only = False
    return connection


def _is_conflict(error: psycopg.Error) -> bool:
    return error.sqlstate in _CONFLICTS or "tuple concurrently" in str(error)


def _reason(error: psycopg.Error) -> str:
    if error.sqlstate in _CREATED_CONCURRENTLY:
        return "another migration has just created the same roles or schemas"
    return error.diag.message_primary or str(error)


def _explain(error: psycopg.Error) -> Exception:
    message = error.diag.message_primary or str(error).strip()
    if error.sqlstate == "P0001":  # raised by install.sql and rights.sql
        return MigrationRefused(message)
    if error.sqlstate is None or error.sqlstate.startswith(("08", "28", "3D", "57")):
        return translate(error)
    where = "".join(getattr(error, "__notes__", []))
    if _is_conflict(error):
        hint = "Find the blocking transaction in pg_stat_activity, and run the migration again."
        return TransactionConflict(
            f"{where}: {message}, {_MAX_ATTEMPTS} times. Nothing was changed", hint=hint
        )
    detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
    return MigrationRefused(f"{where}: {message}{detail}. Nothing was changed.")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _say_nothing(line: str) -> None:
    del line
