"""A connection of a worker or a dispatcher to its database, reopened when it is lost."""

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from holdfast.connections.session import (
    WORKER_ROLE,
    AnyConnection,
    configure_async_session,
    keeps_session,
    with_defaults,
)
from holdfast.engine import AsyncPreparedEngine, Statement
from holdfast.engine.roles import advice, missing_grants
from holdfast.errors import DatabaseUnavailable, NotAllowed, translate

if TYPE_CHECKING:  # a client does not load structlog
    from holdfast.logs import Log

T = TypeVar("T")

DEADLINE_SECONDS = 20.0
LONGEST_PAUSE_SECONDS = 5.0


def hang_up(connection: AnyConnection) -> None:
    """Make a statement that waits for the server fail now. Safe to call from any thread.

    A half-open connection never answers, no server setting limits that, and cancelling the statement would
    wait for the server as well. The caller that waits closes the connection.
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
    """Hang up if the statement inside takes longer. For use in an event loop."""
    timer = asyncio.get_running_loop().call_later(seconds, hang_up, connection)
    try:
        yield
    finally:
        timer.cancel()


class WorkerConnection:
    """Runs statements one at a time. After a loss, the next statement opens another connection."""

    def __init__(
        self,
        url: str,
        log: "Log",
        name: str,
        reconnected: Callable[[], None],
        stopping: asyncio.Event,
        *,
        role: str = WORKER_ROLE,
    ) -> None:
        self.url = with_defaults(url, worker=True)
        self.name = name
        self.pooled = False
        """Whether the last connection went through a pooler such as PgBouncer."""
        self._role = role
        self._log = log
        self._reconnected = reconnected
        self._stopping = stopping
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._engine: AsyncPreparedEngine | None = None
        self._was_open = False
        self._failures = 0
        self._turn = asyncio.Lock()

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed and the next has not been made yet."""
        return self._failures > 0

    async def run(self, build: Callable[[], Statement[T]], seconds: float = DEADLINE_SECONDS) -> T:
        """Run a statement. Raises DatabaseUnavailable if the connection is lost; it may then be repeated."""
        async with self._turn:
            connection = await self.connection()
            if self._engine is None:
                self._engine = AsyncPreparedEngine(connection)
            timer = asyncio.get_running_loop().call_later(seconds, hang_up, connection)
            try:
                result = await self._engine.run(build())
            except DatabaseUnavailable:
                # Even if it is still open: the server may have become read-only, and another one primary.
                await self.close()
                raise
            finally:
                timer.cancel()
        self.mark_working()
        return result

    async def explain(self, error: NotAllowed, role: str) -> None:
        """Put the statement that grants the role into the error, if the login lacks it."""
        missing = await self.run(lambda: missing_grants((role,)))
        if missing:
            error.message, error.hint = f"the login of this {role} lacks a role", advice(missing)

    async def connection(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            self._engine = None
            self._connection = await self._open()
        return self._connection

    def mark_working(self) -> None:
        """Forget earlier failures: the server has replied."""
        if self._failures:
            self._failures = 0
            self._log.info("database_back", connection=self.name)

    async def pause(self, error: BaseException) -> None:
        """Wait after a failure: 200 ms, doubled each time up to 5 s, of which at least half at random."""
        self._failures += 1
        longest = min(LONGEST_PAUSE_SECONDS, 0.1 * 2 ** min(self._failures, 10))
        delay = longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads reconnects, guards nothing
        self._log.warning(
            "database_unavailable", connection=self.name, error=str(error), retry_in=round(delay, 2)
        )
        if self._stopping.is_set():  # the event would end this pause and all later ones at once
            await asyncio.sleep(min(delay, 0.5))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._stopping.wait()

    async def give_up(self) -> None:
        """Make a statement that waits for the server fail now. Cancelling it could take seconds."""
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
        """Close a connection that is not needed now. Opening it again does not count as a reconnect."""
        await self.close()
        self._was_open = False

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        try:
            connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        except psycopg.Error as error:
            raise _unavailable(error) from error
        try:
            with deadline(connection, DEADLINE_SECONDS):
                await configure_async_session(connection, self._role)
        except BaseException as error:
            await connection.close()
            if isinstance(error, psycopg.Error):
                raise _unavailable(error) from error
            raise
        self.pooled = not keeps_session(connection)
        if self._was_open:
            self._reconnected()
        self._was_open = True
        return connection


def _unavailable(error: psycopg.Error) -> DatabaseUnavailable:
    """Whatever prevents a connection may be temporary: a restart, a limit, a new password."""
    found = translate(error)
    return found if isinstance(found, DatabaseUnavailable) else DatabaseUnavailable(str(found))
