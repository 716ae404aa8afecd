"""The only Python that names SQL functions and views.

Each module covers one noun: its rows as dataclasses, and functions that build one `Statement` per SQL
function, under the name of that function. `Engine.run` executes a statement on the caller's connection, in
the caller's transaction, and never commits.

The fields of a row have the order of the select list. `Json` fields are decoded on arrival. A field whose
name ends in `_json` stays text: a document that cannot be decoded then affects only the task it belongs to.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from holdfast.engine.statement import Statement
from holdfast.errors import translate

__all__ = ["AsyncEngine", "Engine", "Statement"]

T = TypeVar("T")


def _fetched(cursor: psycopg.RawCursor[Any], statement: Statement[T]) -> T:
    with cursor:
        return statement.decode(cursor.fetchall())


async def _async_fetched(cursor: psycopg.AsyncRawCursor[Any], statement: Statement[T]) -> T:
    async with cursor:
        return statement.decode(await cursor.fetchall())


class Engine:
    """Runs statements on a psycopg connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def run(self, statement: Statement[T]) -> T:
        # A cursor of our own: the caller's connection may have another row or cursor factory.
        try:
            with psycopg.RawCursor(self.connection, row_factory=tuple_row) as cursor:
                rows = cursor.execute(statement.sql.encode(), statement.params).fetchall()
        except psycopg.Error as error:
            raise translate(error) from error
        return statement.decode(rows)

    def run_pipelined(self, statements: Iterable[Statement[T]]) -> Iterator[T]:
        """Run statements in order, each sent while the server still works on the previous one."""
        waiting: deque[tuple[psycopg.RawCursor[Any], Statement[T]]] = deque()
        try:
            with self.connection.pipeline():
                for statement in statements:
                    cursor = psycopg.RawCursor(self.connection, row_factory=tuple_row)
                    cursor.execute(statement.sql.encode(), statement.params)
                    waiting.append((cursor, statement))
                    if len(waiting) > 1:
                        yield _fetched(*waiting.popleft())
                while waiting:
                    yield _fetched(*waiting.popleft())
        except psycopg.Error as error:
            raise translate(error) from error


class AsyncEngine:
    """Runs statements on an asynchronous psycopg connection."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection

    async def run(self, statement: Statement[T]) -> T:
        try:
            async with psycopg.AsyncRawCursor(self.connection, row_factory=tuple_row) as cursor:
                await cursor.execute(statement.sql.encode(), statement.params)
                rows = await cursor.fetchall()
        except psycopg.Error as error:
            raise translate(error) from error
        return statement.decode(rows)

    async def run_pipelined(self, statements: Iterable[Statement[T]]) -> AsyncIterator[T]:
        """Run statements in order, each sent while the server still works on the previous one."""
        waiting: deque[tuple[psycopg.AsyncRawCursor[Any], Statement[T]]] = deque()
        try:
            async with self.connection.pipeline():
                for statement in statements:
                    cursor = psycopg.AsyncRawCursor(self.connection, row_factory=tuple_row)
                    await cursor.execute(statement.sql.encode(), statement.params)
                    waiting.append((cursor, statement))
                    if len(waiting) > 1:
                        yield await _async_fetched(*waiting.popleft())
                while waiting:
                    yield await _async_fetched(*waiting.popleft())
        except psycopg.Error as error:
            raise translate(error) from error
