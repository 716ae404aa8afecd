"""JSON on its way into PostgreSQL and back.

Input from a caller that cannot be stored is refused. A handler's report is made storable instead, because
one bad result must not prevent the rest of its batch from being recorded.
"""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any

from holdfast.errors import InvalidArgument, NotPortable
from holdfast.serialization.text import is_nested_deeper, require_storable, storable_json

MAX_REPORT_CHARACTERS = 16 * 1024 * 1024  # far more than finish keeps, far less than a statement can carry
MAX_REPORT_DEPTH = 500  # the parser of PostgreSQL gives up after some thousands

Json = Annotated[Any, "a decoded document"]


class RawJson(str):
    """JSON text that is sent unchanged, so that numbers keep every digit."""

    __slots__ = ()


_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


def load_json(written: str | None) -> Any:
    """Decode a document for display. One that Python cannot decode (a number of 5,000 digits) stays text."""
    if written is None:
        return None
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return written


def dump_json(field: str, value: Any) -> str:
    """Returns JSON that PostgreSQL can store, or raises NotPortable with the name of the field."""
    try:
        return require_storable(field, _written(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPortable(f"{field} cannot be written as JSON: {error}") from None


def report_json(value: Any) -> str:
    """Returns JSON that PostgreSQL can store, whatever a handler has reported.

    Characters that cannot be stored become U+FFFD. A value that cannot be written is replaced by a note.
    """
    try:
        written = _written(value)
    except (TypeError, ValueError, RecursionError) as error:
        return _note(f"the value cannot be written as JSON: {error}")
    if len(written) > MAX_REPORT_CHARACTERS:
        return _note(f"the value is {len(written)} characters long")
    if is_nested_deeper(written, MAX_REPORT_DEPTH):
        return _note(f"the value is nested deeper than {MAX_REPORT_DEPTH} levels")
    return storable_json(written)


def json_array(objects: Iterable[str]) -> RawJson:
    """A JSON array of elements that are JSON text."""
    return RawJson(f"[{','.join(objects)}]")


def json_object(**members: str | None) -> str:
    """A JSON object of members that are JSON text; members that are None are left out."""
    written = (f'"{name}":{value}' for name, value in members.items() if value is not None)
    return f"{{{','.join(written)}}}"


def text_json(field: str, value: str | None) -> str | None:
    return None if value is None else dump_json(field, require_storable(field, value))


def time_json(field: str, value: datetime | None) -> str | None:
    return None if value is None else f'"{with_zone(field, value).isoformat()}"'


def seconds_json(value: timedelta | None) -> str | None:
    return None if value is None else f'"{value.total_seconds():.6f}"'


def with_zone(field: str, value: datetime) -> datetime:
    """Returns the value, or raises InvalidArgument if it has no time zone."""
    if value.tzinfo is None:
        raise InvalidArgument(f"{field} {value.isoformat()} has no time zone", hint="Use an aware datetime.")
    return value


def _written(value: Any) -> str:
    return str(value) if isinstance(value, RawJson) else _encode(value)


def _note(reason: str) -> str:
    return storable_json(json.dumps({"holdfast": "not stored", "reason": reason[:500]}))
