"""JSON and text on their way into PostgreSQL and back.

Input from a caller that cannot be stored is refused. A handler's report is made storable instead, because
one bad result must not prevent the rest of its batch from being recorded.
"""

import json
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any

from holdfast.errors import InvalidArgument, NotPortable

Json = Annotated[Any, "a document, decoded"]
MAX_REPORT_CHARACTERS = 16 * 1024 * 1024  # far over what finish keeps, far under what one statement can carry
MAX_REPORT_DEPTH = 500  # PostgreSQL's own parser gives up at some thousands
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


class RawJson(str):
    """JSON that is text already: sent as it is, with every digit."""

    __slots__ = ()


_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


def load_json(written: str | None) -> Any:
    """Decode for people to read. One that Python cannot decode (a number of 5,000 digits) stays text."""
    if written is None:
        return None
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return written


def dump_json(field: str, value: Any) -> str:
    """JSON that PostgreSQL reads, or a refusal that names the field. NaN and Infinity are not JSON."""
    try:
        return storable_text(field, _written(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPortable(f"{field} cannot be written as JSON: {error}") from None


def report_json(value: Any) -> str:
    """JSON that PostgreSQL reads, whatever a handler reported.

    Characters that cannot be stored become U+FFFD; a document that cannot be written becomes a note.
    """
    try:
        written = _written(value)
    except (TypeError, ValueError, RecursionError) as error:
        return _note(f"the value cannot be written as JSON: {error}")
    if len(written) > MAX_REPORT_CHARACTERS:
        return _note(f"the value is {len(written)} characters long")
    if _depth(written) > MAX_REPORT_DEPTH:
        return _note(f"the value is nested deeper than {MAX_REPORT_DEPTH} levels")
    return _storable_characters(written)


def storable_text(field: str, value: str) -> str:
    """Refused here, because each driver has an error of its own for what cannot be sent."""
    if value.isascii() and "\0" not in value:
        return value
    if "\0" in value:
        raise NotPortable(f"{field} holds a NUL character, which PostgreSQL cannot store")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise NotPortable(
            f"{field} holds {value[error.start]!a} at position {error.start}, which is not a character"
        ) from None
    return value


def array_of(objects: Iterable[str]) -> RawJson:
    return RawJson(f"[{','.join(objects)}]")


def object_of(**members: str | None) -> str:
    """An object of members that are JSON already, joined by hand so that raw JSON goes in unread."""
    written = (f'"{name}":{value}' for name, value in members.items() if value is not None)
    return f"{{{','.join(written)}}}"


def written_instant(field: str, value: datetime | None) -> str | None:
    return None if value is None else f'"{with_zone(field, value).isoformat()}"'


def written_seconds(value: timedelta | None) -> str | None:
    return None if value is None else f'"{value.total_seconds():.6f}"'


def with_zone(field: str, value: datetime) -> datetime:
    if value.tzinfo is None:
        raise InvalidArgument(f"{field} {value.isoformat()} has no time zone", hint="Use an aware datetime.")
    return value


def _written(value: Any) -> str:
    if isinstance(value, RawJson):
        return str(value)
    return _encode(value)


def _storable_characters(written: str) -> str:
    if r"\u0000" in written:
        written = _NUL.sub(r"\1\\ufffd", written)
    if written.isascii():
        return written
    return written.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _depth(written: str) -> int:
    """How deep a document is nested; those with few brackets are not read."""
    if written.count("[") + written.count("{") <= MAX_REPORT_DEPTH:
        return 0
    deepest = level = 0
    for token in _STRING_OR_BRACKET.finditer(written):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        deepest = max(deepest, level)
    return deepest


def _note(reason: str) -> str:
    return _storable_characters(json.dumps({"holdfast": "not stored", "reason": reason[:500]}))
