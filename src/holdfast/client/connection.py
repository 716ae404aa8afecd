"""Connections of the application's own, for calls outside any transaction of the caller's.

A statement is never sent twice unless the caller says that repeating it changes nothing.
"""

import asyncio
import select
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus

from holdfast.client.prepared import PreparedEngine
from holdfast.engine import AsyncEngine, Engine
from holdfast.errors import DatabaseUnavailable, HoldfastError, translate

T = TypeVar("T")

POOL_SIZE = 8

# Without these, a host that has gone silent takes many minutes to give up on.
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "fallback_application_name": "holdfast",
}


class Address:
    """Where the database is, found out when it is first needed: that may start an embedded server."""

    def __init__(self, find: Callable[[], str]) -> None:
        self._find = find
        self._finding = threading.Lock()
        self._found = ""

    def get(self) -> str:
        with self._finding:
            self._found = self._found or self._find()
            return self._found

    async def aget(self) -> str:
        return self._found or await asyncio.to_thread(self.get)


def with_defaults(url: str) -> str:
    given = conninfo_to_dict(url)
    return make_conninfo(url, **{name: value for name, value in _DEFAULTS.items() if name not in given})


def is_pooled(connection: psycopg.BaseConnection[Any], found: tuple[Any, ...] | None) -> bool:
    """A pooler has told us a process number of its own making, and the server knows its own."""
    return found != (connection.info.backend_pid,)


def is_dead(connection: psycopg.BaseConnection[Any]) -> bool:
    """Whether the server hung up while nobody was looking: its farewell then waits in the socket."""
    if connection.closed:
        return True
    waiting = select.poll()
    waiting.register(connection.pgconn.socket, select.POLLIN)
    try:
        for _ in range(3):  # a message, the end of the stream, and one to spare
            if not waiting.poll(0):
                break
            connection.pgconn.consume_input()
    except psycopg.Error:
        return True
    return connection.pgconn.status != ConnStatus.OK


class Pool:
    """For threads: each call has a connection to itself, and at most so many are open."""

    def __init__(self, address: Address, size: int = POOL_SIZE) -> None:
        self._address = address
        self._turn = threading.BoundedSemaphore(size)
        self._idle: list[PreparedEngine] = []

    def run(self, work: Callable[[Engine], T], *, repeatable: bool) -> T:
        with self._turn:
            try:
                return self._attempt(self._take(), work)
            except DatabaseUnavailable:
                if not repeatable:
                    raise
            return self._attempt(self._open(), work)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().connection.close()

    def _attempt(self, engine: PreparedEngine, work: Callable[[Engine], T]) -> T:
        usable = False
        try:
            answer = work(engine)
            usable = True
        except HoldfastError as error:
            usable = not isinstance(error, DatabaseUnavailable)
            raise
        finally:
            # Whatever else was raised, Ctrl-C for one, came in the middle of something.
            if usable:
                self._idle.append(engine)
            else:
                engine.connection.close()
        return answer

    def _take(self) -> PreparedEngine:
        while self._idle:
            engine = self._idle.pop()
            if not is_dead(engine.connection):
                return engine
            engine.connection.close()
        return self._open()

    def _open(self) -> PreparedEngine:
        try:
            connection = psycopg.connect(with_defaults(self._address.get()), autocommit=True)
            found = connection.execute("select pg_backend_pid()").fetchone()
        except psycopg.Error as error:
            raise translate(error) from error
        if is_pooled(connection, found):
            connection.prepare_threshold = None
        return PreparedEngine(connection)


class Link:
    """For one event loop: one connection, one call at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._turn = asyncio.Lock()
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def run(self, work: Callable[[AsyncEngine], Awaitable[T]], *, repeatable: bool) -> T:
        async with self._turn:
            try:
                return await self._attempt(work)
            except DatabaseUnavailable:
                if not repeatable:
                    raise
            return await self._attempt(work)

    def close(self) -> None:
        """Also from another thread, after the loop has ended: nothing here needs it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()

    async def _attempt(self, work: Callable[[AsyncEngine], Awaitable[T]]) -> T:
        if self._connection is not None and is_dead(self._connection):
            self.close()
        if self._connection is None:
            self._connection, _ = await open_async(self._address)
        usable = False
        try:
            answer = await work(AsyncEngine(self._connection))
            usable = True
        except HoldfastError as error:
            usable = not isinstance(error, DatabaseUnavailable)
            raise
        finally:
            if not usable:
                self.close()
        return answer


async def open_async(address: Address) -> tuple[psycopg.AsyncConnection[Any], bool]:
    """A connection, and whether it goes through a pooler, which keeps no state for us."""
    url = await address.aget()
    try:
        connection = await psycopg.AsyncConnection.connect(with_defaults(url), autocommit=True)
    except psycopg.Error as error:
        raise translate(error) from error
    try:
        cursor = await connection.execute("select pg_backend_pid()")
        found = await cursor.fetchone()
    except BaseException as error:  # also when whoever asked for it was cancelled
        connection.pgconn.finish()
        if isinstance(error, psycopg.Error):
            raise translate(error) from error
        raise
    pooled = is_pooled(connection, found)
    if pooled:
        connection.prepare_threshold = None
    return connection, pooled
