"""Running statements in a transaction of the caller: `tx=` of psycopg, asyncpg, SQLAlchemy or Django.

Connections are recognised by the names of their classes, so that no library is imported needlessly.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from holdfast._engine import Statement
from holdfast.errors import HoldfastError, InvalidArgument, translate, translate_state

T = TypeVar("T")
Rows = Sequence[Sequence[Any]]

IN_TRANSACTION = "/* holdfast tx */"
"""Part of every statement that is run in one. A front reads it, and refuses: the task would stay on its shard
if the transaction rolled back. PostgreSQL does not tell a function whether its caller has begun one."""

ACCEPTED = (
    "a psycopg Connection or AsyncConnection, an asyncpg Connection, an SQLAlchemy Connection, Session, "
    "scoped_session, AsyncConnection or AsyncSession, or a Django connection or its alias"
)


def run_in(tx: Any, statement: Statement[T], method: str) -> T:
    """Run it in a transaction of a synchronous library. `method` names the caller in error messages."""
    kind = _kind_of(tx)
    if kind in _ASYNC:
        raise InvalidArgument(
            f"tx is asynchronous ({_named(tx)}): await a{method} instead of calling {method}"
        )
    try:
        rows = _SYNC[kind](tx, _marked(statement))
    except Exception as error:
        _raise_translated(error)
        raise
    return statement.decode(rows)


async def arun_in(tx: Any, statement: Statement[T], method: str) -> T:
    """Run it in a transaction of an asynchronous library."""
    kind = _kind_of(tx)
    if kind in _SYNC:
        raise InvalidArgument(
            f"tx is synchronous ({_named(tx)}): call {method} instead of awaiting a{method}"
        )
    try:
        rows = await _ASYNC[kind](tx, _marked(statement))
    except Exception as error:
        _raise_translated(error)
        raise
    return statement.decode(rows)


def _marked(statement: Statement[T]) -> Statement[T]:
    return Statement(f"{statement.sql} {IN_TRANSACTION}", statement.params, statement.decode)


def _kind_of(tx: Any) -> str:
    if isinstance(tx, str):
        return "django.alias"
    for base in type(tx).__mro__:
        kind = f"{base.__module__.partition('.')[0]}.{base.__name__}"
        if kind in _SYNC or kind in _ASYNC:
            return kind
    raise InvalidArgument(f"tx cannot be a {_named(tx)}", hint=f"Pass {ACCEPTED}.")


def _named(tx: Any) -> str:
    return f"{type(tx).__module__}.{type(tx).__qualname__}"


def _psycopg(tx: psycopg.Connection[Any], statement: Statement[Any]) -> Rows:
    # A cursor of our own: the caller's connection may have another row or cursor factory.
    with psycopg.RawCursor(tx, row_factory=tuple_row) as cursor:
        return cursor.execute(statement.sql.encode(), statement.params).fetchall()


async def _psycopg_async(tx: psycopg.AsyncConnection[Any], statement: Statement[Any]) -> Rows:
    async with psycopg.AsyncRawCursor(tx, row_factory=tuple_row) as cursor:
        await cursor.execute(statement.sql.encode(), statement.params)
        return await cursor.fetchall()


async def _asyncpg(tx: Any, statement: Statement[Any]) -> Rows:
    rows: Rows = await tx.fetch(statement.sql, *statement.params)
    return rows


def _sqlalchemy(tx: Any, statement: Statement[Any]) -> Rows:
    # Not through SQLAlchemy's own types: they would cast an aware datetime to one without a time zone.
    rows: Rows = tx.exec_driver_sql(_sql_for(tx.dialect, statement), statement.params).all()
    return rows


def _sqlalchemy_session(tx: Any, statement: Statement[Any]) -> Rows:
    return _sqlalchemy(tx.connection(), statement)


async def _sqlalchemy_async(tx: Any, statement: Statement[Any]) -> Rows:
    result = await tx.exec_driver_sql(_sql_for(tx.dialect, statement), statement.params)
    rows: Rows = result.all()
    return rows


async def _sqlalchemy_async_session(tx: Any, statement: Statement[Any]) -> Rows:
    return await _sqlalchemy_async(await tx.connection(), statement)


def _sql_for(dialect: Any, statement: Statement[Any]) -> str:
    _check_vendor(dialect.name)
    return statement.sql if dialect.paramstyle == "numeric_dollar" else statement.percent_sql


def _django(tx: Any, statement: Statement[Any]) -> Rows:
    _check_vendor(tx.vendor)
    with tx.cursor() as cursor:
        cursor.execute(statement.percent_sql, statement.params)
        rows: Rows = cursor.fetchall()
    return rows


def _django_alias(tx: str, statement: Statement[Any]) -> Rows:
    if "django.db" not in sys.modules:
        raise InvalidArgument(f"tx={tx!r} would be the alias of a Django database, but Django is not loaded")
    connections = sys.modules["django.db"].connections
    if tx not in connections:
        raise InvalidArgument(f"Django has no database {tx!r}, only {', '.join(map(repr, connections))}")
    return _django(connections[tx], statement)


def _check_vendor(vendor: str) -> None:
    if vendor != "postgresql":
        raise InvalidArgument(f"tx is a transaction of {vendor}, but tasks are stored in PostgreSQL")


_SYNC: dict[str, Callable[[Any, Statement[Any]], Rows]] = {
    "psycopg.Connection": _psycopg,
    "sqlalchemy.Connection": _sqlalchemy,
    "sqlalchemy.Session": _sqlalchemy_session,
    "sqlalchemy.scoped_session": _sqlalchemy_session,
    "django.BaseDatabaseWrapper": _django,
    "django.ConnectionProxy": _django,
    "django.alias": _django_alias,
}
_ASYNC: dict[str, Callable[[Any, Statement[Any]], Awaitable[Rows]]] = {
    "psycopg.AsyncConnection": _psycopg_async,
    "asyncpg.Connection": _asyncpg,
    "asyncpg.PoolConnectionProxy": _asyncpg,
    "sqlalchemy.AsyncConnection": _sqlalchemy_async,
    "sqlalchemy.AsyncSession": _sqlalchemy_async_session,
    "sqlalchemy.async_scoped_session": _sqlalchemy_async_session,
}


def _raise_translated(error: Exception) -> None:
    """Raise an error of PostgreSQL as one of our classes; leave other errors as they are."""
    if isinstance(error, HoldfastError):
        return
    for cause in _causes(error):
        if isinstance(cause, psycopg.Error):
            raise translate(cause) from error
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if isinstance(state, str):
            raise _from_foreign(cause, state) from error


def _causes(error: BaseException) -> list[BaseException]:
    """Return the chain of errors, innermost first: SQLAlchemy and Django wrap what the driver raised."""
    found: list[BaseException] = []
    next_one: BaseException | None = error
    while next_one is not None and next_one not in found:
        found.append(next_one)
        next_one = getattr(next_one, "orig", None) or next_one.__cause__
    return found[::-1]


def _from_foreign(error: BaseException, state: str) -> HoldfastError:
    """Translate an error of asyncpg, or of psycopg2, which has its fields in `diag`."""
    diag = getattr(error, "diag", None)
    message = getattr(diag, "message_primary", None) or getattr(error, "message", None) or str(error)
    return translate_state(
        state,
        message,
        detail=getattr(diag, "message_detail", None) or getattr(error, "detail", None),
        hint=getattr(diag, "message_hint", None) or getattr(error, "hint", None),
        context=getattr(diag, "context", None) or getattr(error, "context", None),
    )
