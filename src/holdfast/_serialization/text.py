"""Text and JSON that PostgreSQL can store and that terminals and pages can show.

Input from a caller that cannot be stored is refused. A handler's report is made storable instead, because
one bad result must not prevent the rest of its batch from being recorded.
"""

import json
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import accumulate
from typing import Annotated, Any

from holdfast.errors import InvalidArgument, UnsupportedValue

REPLACEMENT = "\ufffd"
MAX_REPORT_CHARACTERS = 16 * 1024 * 1024  # far more than finish keeps, far less than a statement can carry
MAX_REPORT_DEPTH = 500  # the parser of PostgreSQL gives up after some thousands
MAX_STORED_DEPTH = 64
CERTAINLY_STORED = 128  # characters: too few for 65 levels, or for a number that is too large
LONGEST_ESCAPE = 6  # characters for one byte: \u0041

Json = Annotated[Any, "a decoded document"]

_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
# Possessive, so that a long string cannot cause backtracking.
_STRINGS_AND_SCALARS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^"\[\]{}]++')
_LONG_NUMBER = re.compile(r"\d{309}|\d[eE][+-]?\d")  # as PostgreSQL writes it: 1e300 takes 301 digits
_LEVELS = {"[": 1, "{": 1, "]": -1, "}": -1}

_BIDI = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C]
_CONTROLS = [code for code in (*range(0x20), *range(0x7F, 0xA0), *_BIDI) if chr(code) not in "\n\t"]
_VISIBLE = {code: f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" for code in _CONTROLS}  # noqa: PLR2004 - a byte


def storable(text: str, max_length: int | None = None) -> str:
    """Replace what PostgreSQL cannot store with U+FFFD. Of a text that is too long, keep both ends."""
    if max_length is not None and len(text) > max_length:
        omitted = len(text) - max_length
        text = f"{text[: max_length // 2]}\n… {omitted} characters left out …\n{text[-max_length // 2 :]}"
    return _without_surrogates(text.replace("\0", REPLACEMENT))


def storable_value(value: Any) -> Any:
    """The same for every text in a value made of dicts, lists and tuples."""
    match value:
        case str():
            return storable(value)
        case dict():
            return {storable_value(key): storable_value(member) for key, member in value.items()}
        case list() | tuple():
            return [storable_value(member) for member in value]
    return value


def storable_json(written: str) -> str:
    """The same for a JSON document, where NUL is written as an escape."""
    if r"\u0000" in written:
        written = _ESCAPED_NUL.sub(r"\1\\ufffd", written)
    return _without_surrogates(written)


def has_escaped_nul(written: str) -> bool:
    """True if a text in a JSON document holds a NUL character."""
    return r"\u0000" in written and _ESCAPED_NUL.search(written) is not None


def require_storable(field: str, value: str) -> str:
    """Return the value, or raise UnsupportedValue: each driver has a different error for such text."""
    if value.isascii() and "\0" not in value:
        return value
    if "\0" in value:
        raise UnsupportedValue(f"{field} holds a NUL character, which PostgreSQL cannot store")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedValue(
            f"{field} holds {value[error.start]!a} at position {error.start}, which is not a character"
        ) from None
    return value


def is_nested_deeper(written: str, max_depth: int) -> bool:
    """True if a JSON document has more than this many levels. Documents with few brackets are not scanned."""
    if written.count("[") + written.count("{") <= max_depth:
        return False
    brackets = _STRINGS_AND_SCALARS.sub("", written)
    return max(accumulate(map(_LEVELS.__getitem__, brackets)), default=0) > max_depth


def storage_problem(written: str, max_bytes: int) -> str | None:
    """Why the database would not keep this JSON document, as `queues.document_problem` decides, or None."""
    if len(written) <= CERTAINLY_STORED:
        return None
    if len(written) > LONGEST_ESCAPE * max_bytes:  # not parsed: it may be hundreds of megabytes
        return f"is longer than the {max_bytes} bytes allowed"
    if is_nested_deeper(written, MAX_STORED_DEPTH):
        return f"is nested deeper than {MAX_STORED_DEPTH} levels"
    # A character takes at most 4 bytes, and PostgreSQL writes at most one space for each.
    if len(written) * 5 <= max_bytes and _LONG_NUMBER.search(written) is None:
        return None
    longer = 0

    def parse_float(digits: str) -> int:
        nonlocal longer
        longer += len(f"{Decimal(digits):f}") - 1
        return 0  # one character, which stands for all of them

    try:
        plain = json.loads(written, parse_int=_portable_int, parse_float=parse_float)
        size = len(json.dumps(plain, ensure_ascii=False).encode()) + longer
    except ValueError:
        return "contains a number that Python or JavaScript cannot read"
    return f"is {size} bytes long, and {max_bytes} are allowed" if size > max_bytes else None


def _portable_int(digits: str) -> int:
    number = int(digits)
    if abs(number) > sys.float_info.max:
        raise ValueError(digits)
    return number


def visible(text: str) -> str:
    """Escape the characters that move the cursor, change colours, or reverse or hide part of a line."""
    return text.translate(_VISIBLE)


def _without_surrogates(text: str) -> str:
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
    """Returns JSON that PostgreSQL can store, or raises UnsupportedValue with the name of the field."""
    try:
        return require_storable(field, _written(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsupportedValue(f"{field} cannot be written as JSON: {error}") from None


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
