"""A request's body: JSON, bounded before it is read, and kept as text so that no digit of it is lost."""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

from fastapi import Request
from pydantic import TypeAdapter, ValidationError

from holdfast.http.problem import Problem

T = TypeVar("T")

MAX_BYTES = 1024 * 1024
MAX_BATCH_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 70  # the engine takes payloads of 64 levels; around one are a task and a batch

_JSON_TYPE = re.compile(r"application/(json|[\w.+-]+\+json)\s*(;.*)?", re.IGNORECASE)
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


async def read_text(request: Request, max_bytes: int = MAX_BYTES) -> str:
    """The body as text. Its type has to be said: a form of another site cannot say that one."""
    if _JSON_TYPE.fullmatch(request.headers.get("content-type", "")) is None:
        raise Problem(415, "the body must be JSON", hint="Send it with Content-Type: application/json.")
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > max_bytes:
            raise Problem(413, f"the body is larger than {max_bytes} bytes", headers={"Connection": "close"})
    try:
        text = taken.decode()
    except UnicodeDecodeError:
        raise Problem(400, "the body is not UTF-8") from None
    if _is_deep(text):
        raise Problem(422, f"the body is nested deeper than {MAX_DEPTH} levels")
    return text


async def read_optional(request: Request) -> str:
    """For bodies that may be left out."""
    if "content-type" not in request.headers and request.headers.get("content-length", "0") == "0":
        return "{}"
    return await read_text(request)


def parse(text: str) -> Any:
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None


def checked(shape: TypeAdapter[T], value: Any) -> T:
    """Refused unless it has this shape, by a message that names the field."""
    try:
        return shape.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise Problem(400, f"{place.lstrip('.') or 'the body'}: {first['msg']}") from None


def elements(text: str) -> Iterator[str]:
    """The elements of an array that is known to be one, each as it was written."""
    end = text.index("[") + 1
    while True:
        start = _skip(text, end)
        if text[start] == "]":
            return
        if text[start] == ",":
            start = _skip(text, start + 1)
        _, end = _decoder.raw_decode(text, start)
        yield text[start:end]


def _skip(text: str, place: int) -> int:
    while text[place] in " \t\r\n":
        place += 1
    return place


def _is_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    level = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if level > MAX_DEPTH:
            return True
    return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
