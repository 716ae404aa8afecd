"""Errors as they are stored with an attempt: a kind, a message, an exception and its traceback."""

import json
import traceback
from collections.abc import Mapping
from typing import Any

from holdfast._serialization.text import storable
from holdfast.errors import StepFailed

MAX_MESSAGE = 8_000
MAX_TRACEBACK = 16_000
MAX_ERROR_BYTES = 60_000  # finish keeps 64 KiB of an error
MIN_OUTPUT = 100
_TRUNCATED_FIRST = ("stdout", "stderr", "traceback")


def error_of(kind: str, message: str) -> dict[str, Any]:
    """An error without an exception."""
    return {"kind": kind, "message": storable(message, MAX_MESSAGE)}


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as a stored error, with as much of its traceback as fits."""
    name = type(error).__qualname__
    described = {
        "kind": "handler_error",
        "message": storable(f"{name}: {_text_of(error)}", MAX_MESSAGE),
        "exception": storable(f"{type(error).__module__}.{name}", MAX_MESSAGE),
    }
    if isinstance(error, StepFailed) and error.arguments is not None:
        described["arguments"] = error.arguments
    for max_length in (MAX_TRACEBACK, MAX_TRACEBACK // 4):
        described["traceback"] = storable(_traceback_of(error), max_length)
        if _fits(described):
            return described
    del described["traceback"]
    return described


def fitted(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Details that fit into a stored error beside its message: output and traceback are cut first."""
    whole = {
        name: storable(value, MAX_MESSAGE) if isinstance(value, str) else value
        for name, value in detail.items()
    }
    max_length = MAX_MESSAGE
    while not _fits([whole, "x" * MAX_MESSAGE]) and max_length > MIN_OUTPUT:
        max_length //= 2
        for name in _TRUNCATED_FIRST:
            if name in whole:
                whole[name] = storable(whole[name], max_length)
    return whole


def brief(error: BaseException) -> str:
    """One line for the log. The whole error is stored with the attempt."""
    lines = _text_of(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:500]}" if lines else type(error).__name__


def _fits(described: object) -> bool:
    return len(json.dumps(described, ensure_ascii=False).encode("utf-8", "replace")) <= MAX_ERROR_BYTES


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as problem:  # noqa: BLE001 - __str__ of an application's exception may raise anything
        return f"(its text cannot be read: {type(problem).__name__})"


def _traceback_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error, limit=-40))
    except BaseException as problem:  # noqa: BLE001 - as above
        return f"(the traceback cannot be read: {type(problem).__name__})"
