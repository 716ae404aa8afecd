"""A statement as a value: built once, executed by whichever driver has the connection.

Placeholders are PostgreSQL's own ($1, $2 …), each used once and in order. Every one is cast, so that no
driver guesses a type; documents travel as text both ways, past whatever codec the caller's connection has.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Generic, TypeVar
from uuid import UUID

from holdfast.engine.documents import Json, dump_json, load_json, storable_text, with_zone

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Row = Sequence[Any]
Decode = Callable[[Sequence[Row]], T]

_PLACEHOLDER = re.compile(r"\$\d+")


@dataclass(frozen=True, slots=True)
class Statement(Generic[T_co]):
    """SQL, what is bound to it, and how its rows become a value."""

    sql: str
    params: tuple[Any, ...]
    decode: Decode[T_co]

    @property
    def percent_sql(self) -> str:
        """The same for drivers that write a placeholder as %s."""
        return _PLACEHOLDER.sub("%s", self.sql.replace("%", "%%"))


@dataclass(frozen=True, slots=True)
class Bound:
    """A value on its way into a statement, with the type that PostgreSQL shall give it."""

    cast: str
    value: Any


Argument = Bound | None
"""None is an argument that is not passed: the function's own default holds."""


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


def instant(value: datetime | None) -> Argument:
    return None if value is None else Bound("timestamptz", value)


def span(value: timedelta | None) -> Argument:
    return None if value is None else Bound("interval", value)


def due(run_at: datetime | None, delay: timedelta | None) -> Argument:
    """When a task shall run. A delay is counted by the engine's clock: nobody else's is asked."""
    return instant(run_at) if delay is None else Bound("interval + queues.clock()", delay)


def document(value: Any) -> Bound:
    return Bound("text::jsonb", value)


def call(
    function: str, decode: Decode[T], arguments: Mapping[str, Argument], columns: str = ""
) -> Statement[T]:
    """Call a function with its arguments by name; with columns, as a table."""
    passed = [(name, bound) for name, bound in arguments.items() if bound is not None]
    params = tuple([_checked(name, bound) for name, bound in passed])
    casts = tuple([(name, bound.cast) for name, bound in passed])
    return Statement(_called(function, casts, columns), params, decode)


@lru_cache(maxsize=1024)
def _called(function: str, casts: tuple[tuple[str, str], ...], columns: str) -> str:
    arguments = ", ".join(f"{name} => ${n}::{cast}" for n, (name, cast) in enumerate(casts, start=1))
    called = f"{function}({arguments})"
    return f"select {columns} from {called} answer" if columns else f"select {called}"  # noqa: S608 - our names only


def columns_of(row: type[Any]) -> str:
    """The select list that fills the fields of a dataclass, in their order."""
    return ", ".join(_column(field.name, field.type) for field in fields(row))


def _column(name: str, kind: object) -> str:
    if name.endswith("_json"):
        return f"answer.{name.removesuffix('_json')}::text"
    return f"answer.{name}::text" if kind is Json else f"answer.{name}"


def scalar(rows: Sequence[Row]) -> Any:
    return rows[0][0]


def nothing(rows: Sequence[Row]) -> None:
    del rows


def many(row: Callable[..., T]) -> Decode[list[T]]:
    """A list of dataclasses."""
    decoders = _decoders(row)
    if not decoders:
        return lambda rows: [row(*values) for values in rows]
    return lambda rows: [row(*_decoded(values, decoders)) for values in rows]


def first(row: Callable[..., T]) -> Decode[T | None]:
    """A dataclass, or None where there is no row."""
    every = many(row)
    return lambda rows: next(iter(every(rows[:1])), None)


def only(row: Callable[..., T]) -> Decode[T]:
    every = many(row)
    return lambda rows: every(rows)[0]


def _decoders(row: Any) -> frozenset[int]:
    return frozenset(n for n, field in enumerate(fields(row)) if field.type is Json)


def _decoded(values: Row, documents: frozenset[int]) -> Iterable[Any]:
    return (load_json(value) if n in documents else value for n, value in enumerate(values))


def _checked(name: str, bound: Bound) -> Any:
    match bound.cast:
        case "text":
            return storable_text(name, bound.value)
        case "text[]":
            return [storable_text(name, value) for value in bound.value]
        case "text::jsonb":
            return dump_json(name, bound.value)
        case "timestamptz":
            return with_zone(name, bound.value)
    return bound.value
