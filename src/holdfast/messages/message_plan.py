"""What the payload of a message task says: the functions to call, the message, and its idempotency key."""

import json
from dataclasses import dataclass
from typing import Any

from holdfast.messages.provider import Email, SendFailed, Sms


@dataclass(frozen=True, slots=True)
class SendPlan:
    """The payload of such a task, and the functions that it names."""

    payload: dict[str, Any]
    before: str | None
    success: str | None
    error: str | None


def read_plan(payload: str) -> SendPlan | None:
    """Returns None if the payload is not that of a send."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):  # JSON that PostgreSQL stores and Python cannot read
        return None
    if not isinstance(found, dict):
        return None
    names = [found.get(f"{when}_handler") for when in ("before", "success", "error")]
    if not all(isinstance(name, str | None) for name in names):
        return None
    return SendPlan(found, *names)


def idempotency_key(task_id: str, content: dict[str, Any]) -> str:
    """The idempotency key of the before-handler for all attempts of a send, or else one of this task."""
    given = content.get("idempotency_key")
    return given if isinstance(given, str) and given else f"holdfast-{task_id}"


def compose_email(content: dict[str, Any], key: str) -> Email:
    """Build an e-mail from its content. Raises SendFailed."""
    return Email(
        to=_text(content, "to"),
        subject=_text(content, "subject"),
        text=_optional_text(content, "text"),
        html=_optional_text(content, "html"),
        sender=_optional_text(content, "sender"),
        reply_to=_optional_text(content, "reply_to"),
        headers=_headers(content),
        idempotency_key=key,
    )


def compose_sms(content: dict[str, Any], key: str) -> Sms:
    """Build a text message from its content. Raises SendFailed."""
    return Sms(
        to=_text(content, "to"),
        text=_text(content, "text"),
        sender=_optional_text(content, "sender"),
        idempotency_key=key,
    )


def _text(content: dict[str, Any], name: str) -> str:
    found = _optional_text(content, name)
    if found is None:
        raise SendFailed("malformed", f"the message has no {name}", permanent=True)
    return found


def _optional_text(content: dict[str, Any], name: str) -> str | None:
    found = content.get(name)
    if found is not None and not isinstance(found, str):
        raise SendFailed("malformed", f"the message's {name} is not text", permanent=True)
    return found


def _headers(content: dict[str, Any]) -> dict[str, str]:
    found = content.get("headers") or {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise SendFailed("malformed", "the message's headers are not an object of texts", permanent=True)
    return found
