"""Connections of the application's own, for calls outside any transaction of the caller's.

A statement is never sent twice unless the caller says that repeating it changes nothing.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg

from holdfast.connections import session
from holdfast.connections.prepared import PreparedEngine
from holdfast.connections.session import DatabaseAddress, is_lost, open_async, with_defaults
from holdfast.engine import AsyncEngine, Engine
from holdfast.errors import DatabaseUnavailable, HoldfastError, translate

T = TypeVar("T")

POOL_SIZE = 8


class Pool:
    """For threads: each call has a connection to itself, and at most so many are open."""

    def __init__(self, address: DatabaseAddress, size: int = POOL_SIZE) -> None:
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
            if not is_lost(engine.connection):
                return engine
            engine.connection.close()
        return self._open()

    def _open(self) -> PreparedEngine:
        try:
            connection = psycopg.connect(with_defaults(self._address.get()), autocommit=True)
            row = connection.execute("select pg_backend_pid()").fetchone()
        except psycopg.Error as error:
            raise translate(error) from error
        assert row is not None  # noqa: S101 - a select without a condition has one row
        if session.is_pooled(connection, row[0]):
            connection.prepare_threshold = None
        return PreparedEngine(connection)


class AsyncPool:
    """For one event loop: one connection, one call at a time."""

    def __init__(self, address: DatabaseAddress) -> None:
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
        if self._connection is not None and is_lost(self._connection):
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
