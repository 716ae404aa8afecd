"""Opening one connection and setting up its session: defaults of the address, poolers, roles, timeouts."""

import asyncio
import os
import threading
from collections.abc import Callable
from math import ceil
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

LOCK_SECONDS = 1.0
WORKER_ROLE = "holdfast_worker"
CLIENT_ROLE = "holdfast_client"

# A database of a single login has no roles: the login that uses it owns the schema.
SINGLE_LOGIN = """coalesce(
  (select pg_get_userbyid(c.relowner) <> 'holdfast_owner' from pg_class c join pg_namespace n
     on n.oid = c.relnamespace where n.nspname = 'queues' and c.relname = 'installation'), false)"""
SESSION_FACTS = """
select pg_backend_pid(), count(*) = 2 and not {single_login}
from pg_roles r
where r.rolname in ('{role}', 'holdfast_owner') and pg_has_role(current_user, r.oid, 'member')
"""

# With the defaults of the operating system, an unreachable host is noticed only after many minutes.
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "fallback_application_name": "holdfast",
}
_ENVIRONMENT = {"connect_timeout": "PGCONNECT_TIMEOUT", "target_session_attrs": "PGTARGETSESSIONATTRS"}
_WORKER_DEFAULTS = {"connect_timeout": "5", "fallback_application_name": "holdfast worker"}


class DatabaseFacts(NamedTuple):
    """What is asked once for each address, with the first statement of its first connection."""

    is_front: bool
    """A front of several shards: every call commits by itself."""
    has_roles: bool
    """False in a database of a single login, which owns the schema."""
    is_installed: bool


PLAIN = DatabaseFacts(is_front=False, has_roles=True, is_installed=True)
"""Of a connection that was opened by others."""


def facts_of(connection: AnyConnection) -> DatabaseFacts:
    found: DatabaseFacts = getattr(connection, "facts", None) or PLAIN
    return found


class DatabaseAddress:
    """The connection string, resolved on first use: resolving it may start an embedded server."""

    def __init__(self, resolve: Callable[[], str]) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._resolved = ""
        self.facts: DatabaseFacts | None = None
        """None until a connection to an installed database was opened."""

    def get(self) -> str:
        with self._lock:
            self._resolved = self._resolved or self._resolve()
            return self._resolved

    async def aget(self) -> str:
        return self._resolved or await asyncio.to_thread(self.get)


def with_defaults(url: str, *, worker: bool = False, reply_seconds: float | None = None) -> str:
    """Add our defaults for parameters that neither the URL nor the environment sets.

    A call that has less time than the default connects in that time, or in two seconds, the least that libpq
    can do. Of several hosts, a worker needs one that accepts writes. An application may want to read from a
    standby.
    """
    given = conninfo_to_dict(url)
    given |= {name: "" for name, variable in _ENVIRONMENT.items() if variable in os.environ}
    defaults = _DEFAULTS | _WORKER_DEFAULTS if worker else dict(_DEFAULTS)
    if reply_seconds is not None:
        defaults["connect_timeout"] = str(max(2, min(int(_DEFAULTS["connect_timeout"]), ceil(reply_seconds))))
    if worker and ("," in str(given.get("host", "")) or "," in str(given.get("hostaddr", ""))):
        defaults["target_session_attrs"] = "read-write"
    return make_conninfo(url, **{name: value for name, value in defaults.items() if name not in given})


def is_pooled(connection: AnyConnection, server_pid: int) -> bool:
    """Return whether a pooler such as PgBouncer is in between: it reports a process id of its own."""
    return connection.info.backend_pid != server_pid


def session_settings(
    *, powerful: bool, lock_timeout: float, role: str = WORKER_ROLE, lazy_commit: bool = False
) -> str:
    """Return the statement that sets up a session.

    It limits waits for locks, and the rights of a login that has too many, and sets the isolation. With
    `lazy_commit`, for calls that a crash may undo, a commit waits for the disk only where the engine asks.
    Not for use behind a pooler, which would pass these settings on to other clients.
    """
    wanted = {
        "lock_timeout": f"{lock_timeout * 1000:.0f}ms",
        # A statement that waited for another transaction has to see what that one has committed.
        "default_transaction_isolation": "read committed",
    }
    if lazy_commit:
        wanted["synchronous_commit"] = "off"
    if powerful:
        wanted["role"] = role
    return "select " + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in wanted.items())


def configure_session(
    connection: psycopg.Connection[Any], lock_timeout: float = LOCK_SECONDS, *, lazy_commit: bool = False
) -> None:
    """Set up the session of a thread of the worker."""
    row = connection.execute(_session_facts(WORKER_ROLE)).fetchone()
    assert row is not None  # noqa: S101 - an aggregate has one row
    if is_pooled(connection, row[0]):
        connection.prepare_threshold = None
    else:
        settings = session_settings(powerful=row[1], lock_timeout=lock_timeout, lazy_commit=lazy_commit)
        connection.execute(settings.encode())


async def configure_async_session(
    connection: psycopg.AsyncConnection[Any], role: str, *, lazy_commit: bool = False
) -> None:
    """Set up a session of the worker's event loop."""
    server_pid, powerful = await session_facts(connection, role)
    if is_pooled(connection, server_pid):
        connection.prepare_threshold = None
    else:
        settings = session_settings(
            powerful=powerful, lock_timeout=LOCK_SECONDS, role=role, lazy_commit=lazy_commit
        )
        await connection.execute(settings.encode())


async def session_facts(connection: psycopg.AsyncConnection[Any], role: str) -> tuple[int, bool]:
    """Return the process id of the server's backend, and whether the login has more rights than the role."""
    row = await (await connection.execute(_session_facts(role))).fetchone()
    assert row is not None  # noqa: S101 - an aggregate has one row
    return row[0], row[1]


def _session_facts(role: str) -> bytes:
    return SESSION_FACTS.format(role=role, single_login=SINGLE_LOGIN).encode()


def keeps_session(connection: AnyConnection) -> bool:
    """Return False behind a pooler: no prepared statement, setting or LISTEN outlasts a transaction there."""
    return connection.prepare_threshold is not None
