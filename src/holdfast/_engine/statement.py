"""Statements as values, which any driver can execute, and the engine that runs them with psycopg.

Placeholders are those of PostgreSQL ($1, $2 …), each used once and in order. Each is cast, so that no driver
guesses a type. JSON is sent and received as text, so the codecs of the caller's connection do not matter.
"""

import asyncio
import inspect
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from functools import lru_cache, wraps
from itertools import takewhile
from types import NoneType
from typing import Annotated, Any, Generic, Literal, NamedTuple, ParamSpec, TypeVar, get_args, get_origin
from uuid import UUID

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.rows import tuple_row
from psycopg.types.array import ListBinaryDumper

from holdfast._serialization.text import Json, dump_json, load_json, require_storable, with_zone
from holdfast.errors import translate

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")
Row = Sequence[Any]
Decode = Callable[[Sequence[Row]], T]

MAX_STATEMENTS = 64
"""That are prepared on a connection. Further ones are run with cursors."""
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_PLACEHOLDER = re.compile(r"\$\d+")
_FIRST_ARGUMENT = re.compile(r"\$1(?:::[a-z]+)+")


@dataclass(frozen=True, slots=True)
class Statement(Generic[T_co]):
    """SQL, its parameters, and how its rows become a value."""

    sql: str
    params: tuple[Any, ...]
    decode: Decode[T_co]

    @property
    def percent_sql(self) -> str:
        """The SQL for drivers whose placeholder is %s."""
        return _PLACEHOLDER.sub("%s", self.sql.replace("%", "%%"))


class Bound(NamedTuple):
    """A parameter and the type to which it is cast."""

    cast: str
    value: Any


Argument = Bound | None
"""None is not passed, so that the default of the function applies."""


class Texts(list[str]):
    """A parameter of type text[]. Sent in binary form by psycopg, which takes a fifth of the time."""


psycopg.adapters.register_dumper(Texts, ListBinaryDumper)


class Encoded(tuple[bytes | None, ...]):
    """Parameters as PostgreSQL reads them, for a statement that is sent thousands of times a second."""

    __slots__ = ()


def text(value: str | None) -> Argument:
    return None if value is None else Bound("text", value)


def texts(values: Sequence[str] | None) -> Argument:
    return None if values is None else Bound("text[]", list(values))


def integer(value: int | None) -> Argument:
    return None if value is None else Bound("integer", value)


def bigint(value: int | None) -> Argument:
    return None if value is None else Bound("bigint", value)


def boolean(value: bool | None) -> Argument:
    return None if value is None else Bound("boolean", value)


def uuid(value: UUID | None) -> Argument:
    return None if value is None else Bound("uuid", value)


def timestamptz(value: datetime | None) -> Argument:
    return None if value is None else Bound("timestamptz", value)


def interval(value: timedelta | None) -> Argument:
    return None if value is None else Bound("interval", value)


def due(run_at: datetime | None, delay: timedelta | None) -> Argument:
    """When a task runs. A delay counts from the time of the engine's clock, not of the caller's."""
    return timestamptz(run_at) if delay is None else Bound("interval + queues.clock()", delay)


def document(value: Any) -> Bound:
    return Bound("text::jsonb", value)


@dataclass(frozen=True, slots=True)
class Rows(Generic[T_co]):
    """A select list, and how the selected rows become a value."""

    columns: str
    decode: Decode[T_co]

    def __call__(self, rows: Sequence[Row]) -> T_co:
        return self.decode(rows)


def call(function: str, decode: Rows[T] | Decode[T], arguments: Mapping[str, Argument]) -> Statement[T]:
    """Call a function with named arguments: as a table if `decode` has columns, otherwise for its value."""
    columns = decode.columns if isinstance(decode, Rows) else ""
    passed = [(name, bound) for name, bound in arguments.items() if bound is not None]
    params = tuple([_checked(name, bound) for name, bound in passed])
    casts = tuple([(name, bound.cast) for name, bound in passed])
    return Statement(_called(function, casts, columns), params, decode)


BigInt = Annotated[int, "bigint"]
"""An integer of the database that may be larger than 32 bits."""

_CASTS: dict[Any, str] = {
    str: "text",
    int: "integer",
    BigInt: "bigint",
    bool: "boolean",
    bytes: "bytea",
    UUID: "uuid",
    datetime: "timestamptz",
    timedelta: "interval",
}


def sql_function(function: str) -> Callable[[Callable[P, Statement[T]]], Callable[P, Statement[T]]]:
    """Call an SQL function that takes the arguments of the declared one, by their names.

    The annotations say how each is cast and what the rows become: the only value, a dataclass, or a list of
    dataclasses. None is not passed, so that the default of the function applies. A name of Python is written
    with an underscore at its end.
    """

    def declare(declared: Callable[P, Statement[T]]) -> Callable[P, Statement[T]]:
        signature = inspect.signature(declared)
        casts = {name: _cast_of(each.annotation) for name, each in signature.parameters.items()}
        defaults = {name: each.default for name, each in signature.parameters.items()}
        decode: Rows[T] | Decode[T] = _decode_of(get_args(signature.return_annotation)[0])

        @wraps(declared)
        def statement(*args: P.args, **kwargs: P.kwargs) -> Statement[T]:
            declared(*args, **kwargs)  # does nothing, but refuses wrong arguments as every function does
            given = {**defaults, **dict(zip(casts, args, strict=False)), **kwargs}
            arguments = {name.rstrip("_"): _bound(cast, given[name]) for name, cast in casts.items()}
            return call(function, decode, arguments)

        return statement

    return declare


def _bound(cast: str, value: Any) -> Argument:
    if value is None:
        return None
    return Bound(cast, list(value) if cast.endswith("[]") else value)


def _cast_of(annotation: Any) -> str:
    """Of an argument: without None, which every argument may be."""
    if found := _CASTS.get(annotation):
        return found
    options = get_args(annotation)
    if NoneType in options:
        return _cast_of(next(option for option in options if option is not NoneType))
    if get_origin(annotation) is Literal:
        return "text"
    if get_origin(annotation) in (Sequence, list) and options[0] in _CASTS:
        return f"{_CASTS[options[0]]}[]"
    return "text::jsonb"


def _decode_of(annotation: Any) -> Any:
    if annotation is None:
        return nothing
    row: Callable[..., Any] = next(iter(get_args(annotation)), annotation)
    decode = only if row is annotation else many if get_origin(annotation) is list else first
    return decode(row) if is_dataclass(row) else scalar


def with_lock_limit(statement: Statement[T], milliseconds: int) -> Statement[T]:
    """The same call, which fails if it waits longer for a lock, whatever the session allows.

    Arguments are computed before the function is called, and the setting ends with the transaction. The
    shards of a front do not get it.
    """
    limited = f"pg_catalog.set_config('lock_timeout', '{milliseconds}ms', true)"
    sql = _FIRST_ARGUMENT.sub(rf"case when {limited} <> '' then \g<0> end", statement.sql, count=1)
    return Statement(sql, statement.params, statement.decode)


def select(rows: Rows[T], view: str, rest: str = "", params: tuple[Any, ...] = ()) -> Statement[T]:
    """Read a view. The rest of the query calls its rows `answer`."""
    sql = f"select {rows.columns} from {view} answer {rest}".rstrip()  # noqa: S608 - our names only
    return Statement(sql, params, rows)


@lru_cache(maxsize=1024)
def _called(function: str, casts: tuple[tuple[str, str], ...], columns: str) -> str:
    arguments = ", ".join(f"{name} => ${n}::{cast}" for n, (name, cast) in enumerate(casts, start=1))
    called = f"{function}({arguments})"
    return f"select {columns} from {called} answer" if columns else f"select {called}"  # noqa: S608 - our names only


def scalar(rows: Sequence[Row]) -> Any:
    """The only value of the only row."""
    return rows[0][0]


def nothing(rows: Sequence[Row]) -> None:
    del rows


def many(row: Callable[..., T]) -> Rows[list[T]]:
    """A list of dataclasses."""
    documents = _documents_of(row)
    if not documents:
        return Rows(columns_of(row), lambda rows: [row(*values) for values in rows])
    return Rows(columns_of(row), lambda rows: [row(*_decoded(values, documents)) for values in rows])


def first(row: Callable[..., T]) -> Rows[T | None]:
    """A dataclass, or None if there is no row."""
    found = many(row)
    return Rows(found.columns, lambda rows: next(iter(found(rows[:1])), None))


def only(row: Callable[..., T]) -> Rows[T]:
    """A dataclass, of a function that always returns a row."""
    found = many(row)
    return Rows(found.columns, lambda rows: found(rows)[0])


@lru_cache
def columns_of(row: Any) -> str:
    """The select list that fills the fields of a dataclass, in their order."""
    return ", ".join(_column(field.name, field.type) for field in fields(row))


def _column(name: str, kind: object) -> str:
    if name.endswith("_json"):
        return f"answer.{name.removesuffix('_json')}::text"
    return f"answer.{name}::text" if kind is Json else f"answer.{name}"


@lru_cache
def _documents_of(row: Any) -> frozenset[int]:
    return frozenset(n for n, field in enumerate(fields(row)) if field.type is Json)


def _decoded(values: Row, documents: frozenset[int]) -> Iterable[Any]:
    return (load_json(value) if n in documents else value for n, value in enumerate(values))


def _checked(name: str, bound: Bound) -> Any:
    match bound.cast:
        case "text":
            return require_storable(name, bound.value)
        case "text[]":
            return [require_storable(name, value) for value in bound.value]
        case "text::jsonb":
            return dump_json(name, bound.value)
        case "timestamptz":
            return with_zone(name, bound.value)
    return bound.value


def _fetched(cursor: psycopg.RawCursor[Any], statement: Statement[T]) -> T:
    rows = cursor.fetchall()  # raises also what was read of a later statement: then this cursor stays open
    cursor.close()
    return statement.decode(rows)


async def _async_fetched(cursor: psycopg.AsyncRawCursor[Any], statement: Statement[T]) -> T:
    rows = await cursor.fetchall()
    await cursor.close()
    return statement.decode(rows)


def _has_rows(sent: tuple[psycopg.RawCursor[Any] | psycopg.AsyncRawCursor[Any], Any]) -> bool:
    result = sent[0].pgresult
    return result is not None and result.status == ExecStatus.TUPLES_OK


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
                        yield _fetched(*waiting[0])
                        waiting.popleft()
                while waiting:
                    yield _fetched(*waiting[0])
                    waiting.popleft()
        except psycopg.Error as error:
            # An error may be read together with the rows of the statement before it, which has succeeded.
            for cursor, statement in takewhile(_has_rows, waiting):
                yield _fetched(cursor, statement)
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
                    await asyncio.sleep(0)  # to send suspends nothing while the socket has room
                    waiting.append((cursor, statement))
                    if len(waiting) > 1:
                        yield await _async_fetched(*waiting[0])
                        waiting.popleft()
                while waiting:
                    yield await _async_fetched(*waiting[0])
                    waiting.popleft()
        except psycopg.Error as error:
            for cursor, statement in takewhile(_has_rows, waiting):
                yield await _async_fetched(cursor, statement)
            raise translate(error) from error


class PreparedStatements:
    """The statements that are prepared on a connection, and run by libpq's own calls.

    Enqueueing one task takes 180 µs of processor time with the cursors of psycopg, and 100 µs without.
    """

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self._names: dict[str, bytes | None] = {}
        self._transformer = Transformer(connection)

    def include(self, sql: str) -> bool:
        """Whether to run it here. A statement is prepared when it is run again, but not behind a pooler."""
        if sql in self._names:
            return True
        if self._connection.prepare_threshold is not None and len(self._names) < MAX_STATEMENTS:
            self._names[sql] = None
        return False

    def run(self, sql: str, params: tuple[Any, ...]) -> Generator[Any, Any, list[Any]]:
        """For `wait` of the connection, which no other call may use meanwhile, and which is in autocommit."""
        pgconn, transformer = self._connection.pgconn, self._transformer
        dumped: Sequence[Any] = params
        formats: Sequence[Any] | None = None
        if params.__class__ is not Encoded:
            chosen = [PyFormat.BINARY if isinstance(param, Texts) else PyFormat.TEXT for param in params]
            dumped = transformer.dump_sequence(params, chosen)
            formats = transformer.formats
        name = self._names[sql]
        if name is None:
            # Without types: those of the casts apply. The type of a number in Python depends on its size.
            name = f"holdfast_{sum(map(bool, self._names.values()))}".encode()
            pgconn.send_prepare(name, sql.encode())
            self._only((yield from execute(pgconn)))
            self._names[sql] = name
        pgconn.send_query_prepared(name, dumped, formats)
        result = self._only((yield from execute(pgconn)))
        transformer.set_pgresult(result)
        rows = transformer.load_rows(0, result.ntuples, tuple)
        transformer.set_pgresult(None)  # do not keep a large answer
        return rows

    def _only(self, results: Sequence[Any]) -> Any:
        (result,) = results
        if result.status not in _DONE:
            raise error_from_result(result, encoding=self._connection.info.encoding)
        return result


class PreparedEngine(Engine):
    """For a connection in autocommit with one user at a time."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        self._prepared = PreparedStatements(connection)

    def run(self, statement: Statement[T]) -> T:
        if not self._prepared.include(statement.sql):
            return super().run(statement)
        try:
            rows = self.connection.wait(self._prepared.run(statement.sql, statement.params))
        except psycopg.Error as error:
            raise translate(error) from error
        return statement.decode(rows)


class AsyncPreparedEngine(AsyncEngine):
    """The same for an asynchronous connection."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection)
        self.prepared = PreparedStatements(connection)

    async def run(self, statement: Statement[T]) -> T:
        if not self.prepared.include(statement.sql):
            return await super().run(statement)
        try:
            rows = await self.connection.wait(self.prepared.run(statement.sql, statement.params))
        except psycopg.Error as error:
            raise translate(error) from error
        return statement.decode(rows)
