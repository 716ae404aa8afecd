"""JSON request bodies: bounded before they are parsed, and kept as text so that no digit is lost.

Large bodies are parsed in a thread, in steps short enough for the event loop to run in between.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

from fastapi import Request
from pydantic import TypeAdapter, ValidationError

from holdfast._serialization.text import is_nested_deeper
from holdfast.server.problem import Problem
from holdfast.server.schemas import ReasonBody
from holdfast.server.site import site_of

T = TypeVar("T")

MAX_BYTES = 1024 * 1024
MAX_BATCH_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 70  # the engine accepts payloads of 64 levels; a task and a batch add a few
MAX_MEMBERS = 100  # of the object of a body, or of an element of a batch
LARGE_BYTES = 64 * 1024

_JSON_TYPE = re.compile(r"application/(json|[\w.+-]+\+json)\s*(;.*)?", re.IGNORECASE)
_BLANK = re.compile(r"[ \t\r\n]*+")

_REASON = TypeAdapter(ReasonBody)
_threads = ThreadPoolExecutor(2, "holdfast-body")


async def read_text(request: Request, max_bytes: int = MAX_BYTES) -> str:
    """The body as text. Requires the JSON content type, which a form of another site cannot send."""
    if _JSON_TYPE.fullmatch(request.headers.get("content-type", "")) is None:
        raise Problem(415, "the body must be JSON", hint="Set Content-Type: application/json.")
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
    """Runs the work in a thread if the body is large."""
    if len(text) <= LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_threads, work)


async def read_optional(request: Request) -> str:
    """A small body that may be absent: without the content type only if a token is required anyway."""
    bare = "content-type" not in request.headers and request.headers.get("content-length", "0") == "0"
    if bare and site_of(request).options.asks_for_login:
        return "{}"
    return await read_text(request, LARGE_BYTES)


async def read_reason(request: Request) -> str | None:
    """The reason of an action, from an optional body."""
    return validate(_REASON, parse(await read_optional(request))).reason


def parse(text: str) -> Any:
    value, end = _decode(text)
    if _skip(text, end) < len(text):
        raise Problem(400, f"the body is not valid JSON: extra data at character {end}")
    return value


def validate(adapter: TypeAdapter[T], value: Any, path: str = "") -> T:
    """Validates a value. The problem names the field."""
    if isinstance(value, dict) and len(value) > MAX_MEMBERS:
        detail = f"{len(value)} members; at most {MAX_MEMBERS} are allowed"
        raise Problem(400, f"{path or 'the body'}: {detail}")
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path += "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise Problem(400, f"{path.lstrip('.') or 'the body'}: {first['msg']}") from None


def elements(text: str) -> Iterator[tuple[Any, str]]:
    """The elements of an array: the parsed value and its text. Each is limited to MAX_BYTES."""
    position = _skip(text, 0)
    if text[position : position + 1] != "[":
        raise Problem(400, "the body must be an array")
    position = _skip(text, position + 1)
    is_first = True
    while text[position : position + 1] != "]":
        if not is_first:
            if text[position : position + 1] != ",":
                raise Problem(400, f"the body is not valid JSON: expected , or ] at character {position}")
            position = _skip(text, position + 1)
        value, end = _decode_element(text, position)
        yield value, text[position:end]
        position, is_first = _skip(text, end), False
    if _skip(text, position + 1) < len(text):
        raise Problem(400, f"the body is not valid JSON: extra data at character {position + 1}")


def _decode_element(text: str, position: int) -> tuple[Any, int]:
    """Parses one element from a bounded piece of the text, so that one call of the parser stays short."""
    for size in (LARGE_BYTES, MAX_BYTES):
        piece = text[position : position + size]
        try:
            value, end = _decode(piece)
        except Problem:
            if position + size >= len(text):
                raise
        else:
            return value, position + end
    raise Problem(
        413, f"the element at character {position} is larger than {MAX_BYTES} bytes, or not valid JSON"
    )


def _decode(text: str) -> tuple[Any, int]:
    try:
        value, end = _decoder.raw_decode(text, _skip(text, 0))
    except ValueError as error:
        raise Problem(400, f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    if is_nested_deeper(text[:end], MAX_DEPTH):
        raise _too_deep()
    return value, end


def _skip(text: str, position: int) -> int:
    found = _BLANK.match(text, position)
    return found.end() if found else position


def _too_deep() -> Problem:
    return Problem(422, f"the body is nested deeper than {MAX_DEPTH} levels")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
