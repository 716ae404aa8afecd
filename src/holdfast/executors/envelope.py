"""What a command answers: the same envelope as a business function of the database."""

import json
from typing import Any, NoReturn

_TEXTS = ("error", "validation_failure_message")
_SPACE = " \t\n\r"


class BadEnvelope(Exception):
    """What came is not an envelope, and why."""


def read_envelope(written: bytes) -> dict[str, Any]:
    """Its fields; the payload as JSON text, with every digit."""
    try:
        text = written.decode()
        members = json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise BadEnvelope(f"it is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise BadEnvelope(f"it is not one JSON document: {error}") from None
    except (ValueError, RecursionError) as error:
        raise BadEnvelope(str(error)) from None
    _check(members)
    return {
        "success": members["success"],
        "error": members.get("error") or None,
        "validation_failure": members.get("validation_failure_message") or None,
        "payload": _text_of_payload(text) if "payload" in members else None,
    }


def _check(members: Any) -> None:
    if not isinstance(members, dict):
        raise BadEnvelope("it is not an object")
    if not isinstance(members.get("success"), bool):
        raise BadEnvelope('it has no boolean "success"')
    for name in _TEXTS:
        if not isinstance(members.get(name), str | None):
            raise BadEnvelope(f'its "{name}" is not text')
    reasons = [name for name in _TEXTS if members.get(name)]
    if members["success"] == bool(reasons):
        raise BadEnvelope(
            f'it says "success" and has "{reasons[0]}"' if reasons else "it failed and does not say why"
        )


def _text_of_payload(text: str) -> str:
    """As it was written. The last of equal keys counts, as in the database."""
    decoder = json.JSONDecoder()
    found, place = "null", text.index("{") + 1
    while True:
        while text[place] in _SPACE + ",":
            place += 1
        if text[place] == "}":
            return found
        key, place = decoder.raw_decode(text, place)
        while text[place] in _SPACE + ":":
            place += 1
        start = place
        _, place = decoder.raw_decode(text, start)
        if key == "payload":
            found = text[start:place]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
