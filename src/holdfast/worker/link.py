"""A connection of the worker's to its database, made again when it is lost."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.engine import AsyncEngine, Statement
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.worker.logs import Log

T = TypeVar("T")

DEADLINE_SECONDS = 20.0
"""A socket that is half open answers nothing, and no server setting covers it."""

_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "fallback_application_name": "holdfast worker",
}


def with_defaults(url: str) -> str:
    given = conninfo_to_dict(url)
    return make_conninfo(url, **{name: value for name, value in _DEFAULTS.items() if name not in given})


def is_pooled(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], server_pid: int) -> bool:
    """A pooler answers with a process number of its own making."""
    return connection.info.backend_pid != server_pid


class Link:
    """Statements in turn on one connection. A lost one is reopened by the next statement."""

    def __init__(self, url: str, log: Log, name: str) -> None:
        self.url = with_defaults(url)
        self.name = name
        self.pooled = False
        self.reconnects = 0
        self._log = log
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._failures = 0
        self._turn = asyncio.Lock()

    async def run(self, build: Callable[[], Statement[T]]) -> T:
        """A lost connection raises DatabaseUnavailable, after which the statement may be repeated."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS), self._turn:
                connection = self._connection or await self._open()
                answer = await AsyncEngine(connection).run(build())
        except TimeoutError:
            await self.close()
            raise DatabaseUnavailable(f"no answer within {DEADLINE_SECONDS:.0f} s") from None
        except HoldfastError:
            if self._connection is None or self._connection.broken or self._connection.closed:
                await self.close()
            raise
        self._failures = 0
        return answer

    async def connection(self) -> psycopg.AsyncConnection[Any]:
        return self._connection or await self._open()

    async def pause(self, error: BaseException) -> None:
        """Back off after a failure: doubling from 100 ms to 5 s, of which a random part is waited."""
        self._failures += 1
        longest = min(5.0, 0.1 * 2 ** min(self._failures, 10))
        delay = longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads reconnects, guards nothing
        self._log.warning("database_unavailable", link=self.name, error=str(error), retry_in=round(delay, 2))
        await asyncio.sleep(delay)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        try:
            connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        except psycopg.Error as error:
            raise DatabaseUnavailable(str(error).strip()) from error
        await self._settle_in(connection)
        if self._failures:
            self.reconnects += 1
            self._log.info("database_back", link=self.name)
        self._connection = connection
        return connection

    async def _settle_in(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Act with no more rights than production has, unless a pooler would hand them on to others."""
        cursor = await connection.execute(ARRIVAL)
        row = await cursor.fetchone()
        assert row is not None  # noqa: S101 - a select without from has one row
        server_pid, powerful = row
        self.pooled = is_pooled(connection, server_pid)
        if self.pooled:
            connection.prepare_threshold = None
        elif powerful:
            await connection.execute("set role holdfast_worker")


ARRIVAL = """
select pg_backend_pid(), count(*) = 2
from pg_roles r
where r.rolname in ('holdfast_worker', 'holdfast_owner') and pg_has_role(current_user, r.oid, 'member')
"""
