"""The envelope that commands print and business functions return: success or not, why, and a payload."""

import json
from dataclasses import dataclass
from typing import Any, NoReturn

REASONS = ("error", "validation_failure_message")
_SPACE = " \t\n\r"


class MalformedEnvelope(Exception):
    """What came is not an envelope; the message says why."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """Its payload is JSON text, with every digit as it was written."""

    payload: str | None
    error: str | None
    validation_failure: str | None

    @property
    def succeeded(self) -> bool:
        return self.error is None and self.validation_failure is None


def parse_envelope(written: bytes) -> Envelope:
    """The envelope that a command has printed. Raises MalformedEnvelope."""
    try:
        text = written.decode()
        members = json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise MalformedEnvelope(f"it is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise MalformedEnvelope(f"it is not one JSON document: {error}") from None
    except (ValueError, RecursionError) as error:
        raise MalformedEnvelope(str(error)) from None
    has_payload = isinstance(members, dict) and "payload" in members
    return read_envelope(members, _payload_text(text) if has_payload else None)


def read_envelope(members: Any, payload: str | None) -> Envelope:
    """An envelope that was decoded, with its payload as JSON text. Raises MalformedEnvelope."""
    if not isinstance(members, dict):
        raise MalformedEnvelope("it is not an object")
    if not isinstance(members.get("success"), bool):
        raise MalformedEnvelope('it has no boolean "success"')
    for name in REASONS:
        if not isinstance(members.get(name), str | None):
            raise MalformedEnvelope(f'its "{name}" is not text')
    given = [name for name in REASONS if members.get(name)]
    if members["success"] and given:
        raise MalformedEnvelope(f'it says "success" and has "{given[0]}"')
    if not members["success"] and not given:
        raise MalformedEnvelope("it failed and does not say why")
    error, validation_failure = (members.get(name) or None for name in REASONS)
    return Envelope(payload, error, validation_failure)


class FunctionFailed(Exception):
    """A function raised, reported an error, or returned no envelope. The task is retried."""

    def __init__(self, function: str, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.function = function
        self.message = message
        self.detail = detail


def function_envelope(function: str, returned: Any, payload: str | None) -> Envelope:
    """The envelope of a function that succeeded or declined. Raises FunctionFailed for anything else."""
    try:
        envelope = read_envelope(returned, payload)
    except MalformedEnvelope as error:
        message = f"returned {repr(returned)[:200]}, which is not an envelope: {error}"
        raise FunctionFailed(function, message) from None
    if envelope.error is not None:
        raise FunctionFailed(function, envelope.error)
    return envelope


def _payload_text(text: str) -> str:
    """The text of the payload as it was written. The last of equal keys counts, as in the database."""
    decoder = json.JSONDecoder()
    found, position = "null", text.index("{") + 1
    while True:
        while text[position] in _SPACE + ",":
            position += 1
        if text[position] == "}":
            return found
        key, position = decoder.raw_decode(text, position)
        while text[position] in _SPACE + ":":
            position += 1
        start = position
        _, position = decoder.raw_decode(text, start)
        if key == "payload":
            found = text[start:position]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
