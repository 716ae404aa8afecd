"""A connection of the worker's to its database, made again when it is lost."""

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.engine import AsyncEngine, Statement
from holdfast.errors import DatabaseUnavailable, translate
from holdfast.logs import Log
from holdfast.worker.metrics import Metrics

T = TypeVar("T")
AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

DEADLINE_SECONDS = 20.0
LONGEST_PAUSE_SECONDS = 5.0
LOCK_SECONDS = 1.0

_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "fallback_application_name": "holdfast worker",
}

ARRIVAL = """
select pg_backend_pid(), count(*) = 2
from pg_roles r
where r.rolname in ('{role}', 'holdfast_owner') and pg_has_role(current_user, r.oid, 'member')
"""
WORKER = "holdfast_worker"
CLIENT = "holdfast_client"


def with_defaults(url: str) -> str:
    """What the address leaves open. Of several hosts, the one that can be written to is meant."""
    given = conninfo_to_dict(url)
    defaults = dict(_DEFAULTS)
    if "," in str(given.get("host", "")) or "," in str(given.get("hostaddr", "")):
        defaults["target_session_attrs"] = "read-write"
    return make_conninfo(url, **{name: value for name, value in defaults.items() if name not in given})


def is_pooled(connection: AnyConnection, server_pid: int) -> bool:
    """A pooler answers with a process number of its own making."""
    return connection.info.backend_pid != server_pid


def manners(*, powerful: bool, lock_timeout: float, role: str = WORKER) -> str:
    """How a session of ours behaves: with no more rights than production has, and not waiting long for locks.

    Not behind a pooler, which would hand all this on to others.
    """
    limit = f"select set_config('lock_timeout', '{lock_timeout * 1000:.0f}ms', false)"
    return f"{limit}, set_config('role', '{role}', false)" if powerful else limit


def arrive(connection: psycopg.Connection[Any], lock_timeout: float = LOCK_SECONDS) -> None:
    """`Link` does the same for itself."""
    row = connection.execute(ARRIVAL.format(role=WORKER).encode()).fetchone()
    assert row is not None  # noqa: S101 - an aggregate has one row
    if is_pooled(connection, row[0]):
        connection.prepare_threshold = None
    else:
        connection.execute(manners(powerful=row[1], lock_timeout=lock_timeout).encode())


def hang_up(connection: AnyConnection) -> None:
    """Let whatever waits for an answer fail now. From any thread; whoever waits closes the connection.

    A socket that is half open answers nothing, no setting of the server covers it, and to cancel the wait
    would wait for an answer as well.
    """
    if connection.closed:
        return
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.pgconn.socket)) as own,
    ):
        own.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def deadline(connection: AnyConnection, seconds: float) -> Iterator[None]:
    """Around a statement in the event loop."""
    timer = asyncio.get_running_loop().call_later(seconds, hang_up, connection)
    try:
        yield
    finally:
        timer.cancel()


class Link:
    """Statements in turn on one connection. A lost one is reopened by the next statement."""

    def __init__(
        self,
        url: str,
        log: Log,
        name: str,
        metrics: Metrics,
        stopping: asyncio.Event,
        *,
        role: str = WORKER,
    ) -> None:
        self.url = with_defaults(url)
        self.name = name
        self._role = role
        self.pooled = False
        self._log = log
        self._metrics = metrics
        self._stopping = stopping
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._opened = 0
        self._failures = 0
        self._turn = asyncio.Lock()

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed and the next is still to come."""
        return self._failures > 0

    async def run(self, build: Callable[[], Statement[T]], seconds: float = DEADLINE_SECONDS) -> T:
        """A lost connection raises DatabaseUnavailable, after which the statement may be repeated."""
        async with self._turn:
            connection = await self.connection()
            try:
                with deadline(connection, seconds):
                    answer = await AsyncEngine(connection).run(build())
            except DatabaseUnavailable:
                # Even if it still stands: the server may have become read-only, and another one primary.
                await self.close()
                raise
        self.works()
        return answer

    async def connection(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = await self._open()
        return self._connection

    def works(self) -> None:
        """Answers came: the next failure is a first one."""
        if self._failures:
            self._failures = 0
            self._log.info("database_back", link=self.name)

    async def pause(self, error: BaseException) -> None:
        """Back off after a failure: doubling from 200 ms to 5 s, of which a random part is waited."""
        self._failures += 1
        longest = min(LONGEST_PAUSE_SECONDS, 0.1 * 2 ** min(self._failures, 10))
        delay = longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads reconnects, guards nothing
        self._log.warning("database_unavailable", link=self.name, error=str(error), retry_in=round(delay, 2))
        if self._stopping.is_set():  # its event would end the pause at once, and the next, and the next
            await asyncio.sleep(min(delay, 0.5))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._stopping.wait()

    async def give_up(self) -> None:
        """Whoever waits for an answer need wait no longer. To cancel the wait would take seconds."""
        if self._turn.locked() and self._connection is not None:
            hang_up(self._connection)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1), self._turn:
                    pass

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def leave(self) -> None:
        """Close it because nobody needs it now: to open it again will be no reconnect."""
        await self.close()
        self._opened = 0

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        try:
            connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        except psycopg.Error as error:
            raise _unavailable(error) from error
        try:
            with deadline(connection, DEADLINE_SECONDS):
                await self._settle_in(connection)
        except BaseException as error:
            await connection.close()
            if isinstance(error, psycopg.Error):
                raise _unavailable(error) from error
            raise
        if self._opened:
            self._metrics.reconnects += 1
        self._opened += 1
        return connection

    async def _settle_in(self, connection: psycopg.AsyncConnection[Any]) -> None:
        cursor = await connection.execute(ARRIVAL.format(role=self._role).encode())
        row = await cursor.fetchone()
        assert row is not None  # noqa: S101 - an aggregate has one row
        server_pid, powerful = row
        self.pooled = is_pooled(connection, server_pid)
        if self.pooled:
            connection.prepare_threshold = None
        else:
            behaviour = manners(powerful=powerful, lock_timeout=LOCK_SECONDS, role=self._role)
            await connection.execute(behaviour.encode())


def _unavailable(error: psycopg.Error) -> DatabaseUnavailable:
    """Whatever keeps a connection from being made may be over soon: a restart, a limit, a new password."""
    found = translate(error)
    return found if isinstance(found, DatabaseUnavailable) else DatabaseUnavailable(str(found))
