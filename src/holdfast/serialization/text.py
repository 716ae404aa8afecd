"""Text and JSON that PostgreSQL can store and that terminals and pages can show."""

import re
from itertools import accumulate
from typing import Any

from holdfast.errors import NotPortable

REPLACEMENT = "\ufffd"

_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
# Possessive, so that a long string cannot cause backtracking.
_STRINGS_AND_SCALARS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^"\[\]{}]++')
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
    """Return the value, or raise NotPortable: each driver has a different error for such text."""
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


def is_nested_deeper(written: str, max_depth: int) -> bool:
    """True if a JSON document has more than this many levels. Documents with few brackets are not scanned."""
    if written.count("[") + written.count("{") <= max_depth:
        return False
    brackets = _STRINGS_AND_SCALARS.sub("", written)
    return max(accumulate(map(_LEVELS.__getitem__, brackets)), default=0) > max_depth


def visible(text: str) -> str:
    """Escape the characters that move the cursor, change colours, or reverse or hide part of a line."""
    return text.translate(_VISIBLE)


def _without_surrogates(text: str) -> str:
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
