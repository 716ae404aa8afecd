"""A connection of the worker's to its database, made again when it is lost."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from holdfast.connections import session
from holdfast.connections.session import (
    LOCK_SECONDS,
    SESSION_FACTS,
    WORKER_ROLE,
    deadline,
    hang_up,
    session_settings,
    with_defaults,
)
from holdfast.engine import AsyncEngine, Statement
from holdfast.errors import DatabaseUnavailable, translate
from holdfast.logs import Log

T = TypeVar("T")

DEADLINE_SECONDS = 20.0
LONGEST_PAUSE_SECONDS = 5.0


class WorkerConnection:
    """Statements in turn on one connection. A lost one is reopened by the next statement."""

    def __init__(
        self,
        url: str,
        log: Log,
        name: str,
        reconnected: Callable[[], None],
        stopping: asyncio.Event,
        *,
        role: str = WORKER_ROLE,
    ) -> None:
        self.url = with_defaults(url, worker=True)
        self.name = name
        self._role = role
        self.pooled = False
        self._log = log
        self._reconnected = reconnected
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
            self._log.info("database_back", connection=self.name)

    async def pause(self, error: BaseException) -> None:
        """Back off after a failure: doubling from 200 ms to 5 s, of which a random part is waited."""
        self._failures += 1
        longest = min(LONGEST_PAUSE_SECONDS, 0.1 * 2 ** min(self._failures, 10))
        delay = longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads reconnects, guards nothing
        self._log.warning(
            "database_unavailable", connection=self.name, error=str(error), retry_in=round(delay, 2)
        )
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
                await self._configure(connection)
        except BaseException as error:
            await connection.close()
            if isinstance(error, psycopg.Error):
                raise _unavailable(error) from error
            raise
        if self._opened:
            self._reconnected()
        self._opened += 1
        return connection

    async def _configure(self, connection: psycopg.AsyncConnection[Any]) -> None:
        cursor = await connection.execute(SESSION_FACTS.format(role=self._role).encode())
        row = await cursor.fetchone()
        assert row is not None  # noqa: S101 - an aggregate has one row
        server_pid, powerful = row
        self.pooled = session.is_pooled(connection, server_pid)
        if self.pooled:
            connection.prepare_threshold = None
        else:
            settings = session_settings(powerful=powerful, lock_timeout=LOCK_SECONDS, role=self._role)
            await connection.execute(settings.encode())


def _unavailable(error: psycopg.Error) -> DatabaseUnavailable:
    """Whatever keeps a connection from being made may be over soon: a restart, a limit, a new password."""
    found = translate(error)
    return found if isinstance(found, DatabaseUnavailable) else DatabaseUnavailable(str(found))
