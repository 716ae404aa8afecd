"""A request's body: JSON, bounded before it is parsed, and kept as text so that no digit of it is lost.

A large one is worked on in a thread, in steps that leave the event loop its turn between them.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

from fastapi import Request
from pydantic import TypeAdapter, ValidationError

from holdfast.http.problem import Problem
from holdfast.http.site import site_of
from holdfast.serialization.text import is_nested_deeper

T = TypeVar("T")

MAX_BYTES = 1024 * 1024
MAX_BATCH_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 70  # the engine takes payloads of 64 levels; around one are a task and a batch
MAX_MEMBERS = 100  # of the object that a body, or an element of one, is
LARGE_BYTES = 64 * 1024

_JSON_TYPE = re.compile(r"application/(json|[\w.+-]+\+json)\s*(;.*)?", re.IGNORECASE)
_BLANK = re.compile(r"[ \t\r\n]*+")

_workers = ThreadPoolExecutor(2, "holdfast-body")  # two at a time are enough, and leave the others their turn


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
    return text


async def work_on(text: str, work: Callable[[], T]) -> T:
    """What takes long because the body is large does not keep others waiting."""
    if len(text) <= LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_workers, work)


async def read_optional(request: Request) -> str:
    """For small bodies that may be left out: where a token is asked for, a page of others cannot show one."""
    bare = "content-type" not in request.headers and request.headers.get("content-length", "0") == "0"
    if bare and site_of(request).options.asks_for_login:
        return "{}"
    return await read_text(request, LARGE_BYTES)


def parse(text: str) -> Any:
    value, end = _decode(text)
    if _skip(text, end) < len(text):
        raise Problem(400, f"the body is not JSON: something follows it at character {end}")
    return value


def checked(shape: TypeAdapter[T], value: Any, place: str = "") -> T:
    """Refused unless it has this shape, by a message that names the field."""
    if isinstance(value, dict) and len(value) > MAX_MEMBERS:
        told = f"{len(value)} members are too many: at most {MAX_MEMBERS} are allowed"
        raise Problem(400, f"{place or 'the body'}: {told}")
    try:
        return shape.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place += "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise Problem(400, f"{place.lstrip('.') or 'the body'}: {first['msg']}") from None


def elements(text: str) -> Iterator[tuple[Any, str]]:
    """The elements of an array, parsed, and as each was written; none is larger than a task may be."""
    place = _skip(text, 0)
    if text[place : place + 1] != "[":
        raise Problem(400, "the body must be an array")
    place = _skip(text, place + 1)
    is_first = True
    while text[place : place + 1] != "]":
        if not is_first:
            if text[place : place + 1] != ",":
                raise Problem(400, f"the body is not JSON: expecting , or ] at character {place}")
            place = _skip(text, place + 1)
        value, end = _decode_element(text, place)
        yield value, text[place:end]
        place, is_first = _skip(text, end), False
    if _skip(text, place + 1) < len(text):
        raise Problem(400, f"the body is not JSON: something follows the array at character {place + 1}")


def _decode_element(text: str, place: int) -> tuple[Any, int]:
    """Where it ends is not known, and one call of the parser has to be short: it is given a piece."""
    for size in (LARGE_BYTES, MAX_BYTES):
        piece = text[place : place + size]
        try:
            value, end = _decode(piece)
        except Problem:
            if place + size >= len(text):
                raise
        else:
            return value, place + end
    raise Problem(413, f"an element is larger than {MAX_BYTES} bytes, or not JSON, at character {place}")


def _decode(text: str) -> tuple[Any, int]:
    try:
        value, end = _decoder.raw_decode(text, _skip(text, 0))
    except ValueError as error:
        raise Problem(400, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    if is_nested_deeper(text[:end], MAX_DEPTH):
        raise _too_deep()
    return value, end


def _skip(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found else place


def _too_deep() -> Problem:
    return Problem(422, f"the body is nested deeper than {MAX_DEPTH} levels")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
