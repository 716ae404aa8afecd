"""Connections of an application: opened, pooled, and given up when the server is silent.

A call is repeated on another connection only if its caller says that repeating it changes nothing.

TCP does not notice a server, or a proxy before it, that takes statements and never answers: the other side
acknowledges what it is sent. PostgreSQL's own limits end statements, and not silence.

psycopg_pool does not fit: it connects in the background, so that callers time out instead of seeing what the
server said, and a connect that is cancelled there keeps `asyncio.run` from ending (psycopg_pool 3.3.3).
"""

import asyncio
import select
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.waiting import wait_async

from holdfast._connections.session import (
    SINGLE_LOGIN,
    AnyConnection,
    DatabaseAddress,
    DatabaseFacts,
    is_pooled,
    with_defaults,
)
from holdfast._engine import AsyncEngine, AsyncPreparedEngine, Engine, PreparedEngine
from holdfast.errors import DatabaseUnavailable, NoAnswer, TransactionConflict, translate

T = TypeVar("T")
E = TypeVar("E", PreparedEngine, AsyncPreparedEngine)
AsyncWork = Callable[[AsyncEngine], Awaitable[T]]
Connect = Callable[[DatabaseAddress], Awaitable[psycopg.AsyncConnection[Any]]]

POOL_SIZE = 8
SPARE_SECONDS = 1.0
"""By which the server ends a statement earlier than we give up: then it is known that nothing was written."""
_INTERVAL = 0.1

_FACTS = f"""to_regclass('holdfast_front.shard') is not null, not {SINGLE_LOGIN},
  coalesce(to_regclass('holdfast_front.shard'), to_regclass('queues.installation')) is not null"""
# Not behind a pooler, which would pass the setting on to others, not above a limit that the login has, and
# not on a front: at a statement timeout, PL/Proxy waits until a shard that hangs has taken a cancel request.
_LIMIT = """, case when pg_backend_pid() = {pid} and {may_limit}
  and (current_setting('statement_timeout')::interval = '0'
    or current_setting('statement_timeout')::interval > '{milliseconds} ms')
  then set_config('statement_timeout', '{milliseconds}ms', false) end"""


def is_lost(connection: AnyConnection) -> bool:
    """Return True if the server closed the connection while it was idle."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    try:
        for _ in range(3):  # an error message, the end of the stream, and one to spare
            if not poll.poll(0):
                break
            connection.pgconn.consume_input()
    except psycopg.Error:
        return True
    return connection.pgconn.status != ConnStatus.OK


class IdleConnections(Generic[E]):
    """Open connections that no call is using. The one used last is taken first."""

    def __init__(self, max_idle: int) -> None:
        self._max_idle = max_idle
        self._engines: list[E] = []

    def take(self) -> E | None:
        """Return a connection that still works, if there is one."""
        try:
            while is_lost((engine := self._engines.pop()).connection):
                engine.connection.pgconn.finish()
        except IndexError:  # none is left; asking for the length first would race with other threads
            return None
        return engine

    def give_back(self, engine: E, error: BaseException | None = None) -> None:
        """Keep the connection, unless the call lost it, was interrupted or left a transaction open."""
        status = engine.connection.pgconn.transaction_status
        if status == TransactionStatus.IDLE and len(self._engines) < self._max_idle and _keeps(error):
            self._engines.append(engine)
        else:
            engine.connection.pgconn.finish()

    def clear(self) -> None:
        """Close all of them. Works from any thread, and after the event loop has ended."""
        while (engine := self.take()) is not None:
            engine.connection.pgconn.finish()

    def close(self) -> None:
        """Close all of them, and those that calls are using when they are given back."""
        self._max_idle = 0
        self.clear()


def _keeps(error: BaseException | None) -> bool:
    """Return whether a connection can be used again after a call that raised this."""
    # After an interrupt or a cancellation, what we know about the connection may be incomplete.
    return error is None or (isinstance(error, Exception) and not isinstance(error, DatabaseUnavailable))


def _all_in_use(size: int, seconds: float) -> TransactionConflict:
    return TransactionConflict(
        f"all {size} connections to the database were in use for {seconds:g} s; nothing was sent",
        hint="Make fewer calls at once, or find out what the others wait for.",
    )


class Pool:
    """For threads. Each call has a connection to itself; at most `size` are open."""

    def __init__(self, address: DatabaseAddress, size: int = POOL_SIZE, *, reply_seconds: float) -> None:
        """`reply_seconds` limits the wait for a free connection, and for each answer of the server."""
        self._idle: IdleConnections[PreparedEngine] = IdleConnections(size)
        self._address = address
        self._size = size
        self._slots = threading.BoundedSemaphore(size)
        self._reply_seconds = reply_seconds

    def run(self, work: Callable[[Engine], T], *, repeatable: bool) -> T:
        if not self._slots.acquire(timeout=self._reply_seconds):
            raise _all_in_use(self._size, self._reply_seconds)
        try:
            try:
                return self._attempt(work)
            except DatabaseUnavailable as error:
                if not repeatable or isinstance(error, NoAnswer):
                    raise
            self._idle.clear()  # what broke this connection probably broke the others
            return self._attempt(work)
        finally:
            self._slots.release()

    def close(self) -> None:
        self._idle.close()

    def _attempt(self, work: Callable[[Engine], T]) -> T:
        engine = self._idle.take() or PreparedEngine(open_connection(self._address, self._reply_seconds))
        try:
            result = work(engine)
        except psycopg.Error as error:
            translated = translate(error)
            self._idle.give_back(engine, translated)
            raise translated from error
        except BaseException as error:
            self._idle.give_back(engine, error)
            raise
        self._idle.give_back(engine)
        return result


class AsyncPool:
    """For one event loop. Each call has a connection to itself; at most `size` are open."""

    def __init__(
        self,
        address: DatabaseAddress,
        size: int = 1,
        *,
        max_idle: int | None = None,
        slot_seconds: float | None = None,
        reply_seconds: float | None = None,
        connect: Connect | None = None,
    ) -> None:
        """`slot_seconds` limits the wait for a free connection, `reply_seconds` that for each answer of the
        server on a connection that the pool itself opens.
        """
        self._address = address
        self._size = size
        self._slots = asyncio.Semaphore(size)
        self._slot_seconds = slot_seconds
        self._reply_seconds = reply_seconds
        self._connect = connect or self._open
        self._idle: IdleConnections[AsyncPreparedEngine] = IdleConnections(
            size if max_idle is None else max_idle
        )

    async def run(self, work: AsyncWork[T], *, repeatable: bool) -> T:
        await self._acquire_slot()
        try:
            try:
                return await self._attempt(work)
            except DatabaseUnavailable as error:
                if not repeatable or isinstance(error, NoAnswer):
                    raise
            self._idle.clear()
            return await self._attempt(work)
        finally:
            self._slots.release()

    def close(self) -> None:
        """Works from any thread, and after the event loop has ended."""
        self._idle.close()

    async def _open(self, address: DatabaseAddress) -> psycopg.AsyncConnection[Any]:
        return await open_async_connection(address, self._reply_seconds)

    async def _acquire_slot(self) -> None:
        if self._slot_seconds is None:
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout(self._slot_seconds):
                await self._slots.acquire()
        except TimeoutError:
            raise _all_in_use(self._size, self._slot_seconds) from None

    async def _attempt(self, work: AsyncWork[T]) -> T:
        engine = self._idle.take() or AsyncPreparedEngine(await self._connect(self._address))
        try:
            result = await work(engine)
        except psycopg.Error as error:
            translated = translate(error)
            self._idle.give_back(engine, translated)
            raise translated from error
        except BaseException as error:
            self._idle.give_back(engine, error)
            raise
        self._idle.give_back(engine)
        return result


class LimitedConnection(psycopg.Connection[Any]):
    """For threads. `reply_seconds` is set once it is open; without it, a call waits for ever."""

    reply_seconds: float | None = None
    facts: Any = None
    """Of the database, once it is open: see DatabaseFacts."""

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        if self.reply_seconds is None:
            return super().wait(gen, *args, **kwargs)
        try:
            return super().wait(_limited(gen, self.reply_seconds), *args, **kwargs)
        except NoAnswer:
            self.pgconn.finish()
            raise


class LimitedAsyncConnection(psycopg.AsyncConnection[Any]):
    """For an event loop. A call that is cancelled closes the connection and ends at once.

    psycopg would ask the server to cancel the statement, and wait up to ten seconds for the answers.
    """

    reply_seconds: float | None = None
    facts: Any = None
    """Of the database, once it is open: see DatabaseFacts."""

    async def wait(
        self, gen: Generator[Any, Any, T], interval: float = _INTERVAL, *args: Any, **kwargs: Any
    ) -> T:
        if self.reply_seconds is None:
            return await super().wait(gen, interval, *args, **kwargs)
        limited = _limited(gen, self.reply_seconds)
        try:
            return await wait_async(limited, self.pgconn.socket, interval, *args, **kwargs)
        except (NoAnswer, asyncio.CancelledError):
            self.pgconn.finish()
            raise


def _limited(talk: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """The same conversation, which ends when the server has been silent for this long."""
    limit = seconds + SPARE_SECONDS
    until = time.monotonic() + limit
    ready: Any = None
    while True:
        try:
            wait = talk.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result
        ready = yield wait
        if ready:
            until = time.monotonic() + limit
        elif time.monotonic() >= until:
            raise NoAnswer(
                f"the database has not answered for {seconds:g} s; whether it has done what was asked is "
                "not known",
                hint="Check the server and the proxies before it; if it is a front, also its shards, with "
                "holdfast shards status. HOLDFAST_CALL_TIMEOUT sets this limit.",
            )


def open_connection(address: DatabaseAddress, reply_seconds: float | None = None) -> LimitedConnection:
    """Return a connection in autocommit, on which no statement takes longer than `reply_seconds`."""
    url = with_defaults(address.get(), reply_seconds=reply_seconds)
    try:
        connection = LimitedConnection.connect(url, autocommit=True)
        connection.reply_seconds = reply_seconds
        row = connection.execute(_first_statement(connection, reply_seconds, address.facts)).fetchone()
    except psycopg.Error as error:
        raise translate(error) from error
    _adapt(connection, address, row)
    return connection


async def open_async_connection(
    address: DatabaseAddress, reply_seconds: float | None = None
) -> psycopg.AsyncConnection[Any]:
    """Return a connection in autocommit, on which no statement takes longer than `reply_seconds`."""
    url = with_defaults(await address.aget(), reply_seconds=reply_seconds)
    try:
        connection = await LimitedAsyncConnection.connect(url, autocommit=True)
    except psycopg.Error as error:
        raise translate(error) from error
    connection.reply_seconds = reply_seconds
    try:
        row = await (
            await connection.execute(_first_statement(connection, reply_seconds, address.facts))
        ).fetchone()
    except BaseException as error:  # including the cancellation of the caller
        connection.pgconn.finish()
        if isinstance(error, psycopg.Error):
            raise translate(error) from error
        raise
    _adapt(connection, address, row)
    return connection


def _first_statement(
    connection: AnyConnection, reply_seconds: float | None, facts: DatabaseFacts | None
) -> bytes:
    asked = _FACTS if facts is None else ", ".join(map(str, facts))
    statement = f"select pg_backend_pid(), {asked}"
    if reply_seconds is not None:
        may_limit = (
            "to_regclass('holdfast_front.shard') is null" if facts is None else str(not facts.is_front)
        )
        milliseconds = round(reply_seconds * 1000)
        statement += _LIMIT.format(
            pid=connection.info.backend_pid, milliseconds=milliseconds, may_limit=may_limit
        )
    return statement.encode()


def _adapt(
    connection: LimitedConnection | LimitedAsyncConnection,
    address: DatabaseAddress,
    row: tuple[Any, ...] | None,
) -> None:
    assert row is not None  # noqa: S101 - a select without a condition has one row
    if is_pooled(connection, row[0]):
        connection.prepare_threshold = None
    connection.facts = DatabaseFacts(*row[1:4])
    if connection.facts.is_installed:
        address.facts = connection.facts
