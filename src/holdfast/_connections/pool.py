"""Pools of connections: one for threads, one for an event loop.

A call is repeated on another connection only if its caller says that repeating it changes nothing.

psycopg_pool does not fit: it connects in the background, so that callers time out instead of seeing what the
server said, and a connect that is cancelled there keeps `asyncio.run` from ending (psycopg_pool 3.3.3).
"""

import asyncio
import select
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.pq import ConnStatus, TransactionStatus

from holdfast._connections.session import (
    AnyConnection,
    DatabaseAddress,
    open_async_connection,
    open_connection,
)
from holdfast._engine import AsyncEngine, AsyncPreparedEngine, Engine, PreparedEngine
from holdfast.errors import DatabaseUnavailable, NoAnswer, TransactionConflict, translate

T = TypeVar("T")
E = TypeVar("E", PreparedEngine, AsyncPreparedEngine)
AsyncWork = Callable[[AsyncEngine], Awaitable[T]]
Connect = Callable[[DatabaseAddress], Awaitable[psycopg.AsyncConnection[Any]]]

POOL_SIZE = 8


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
