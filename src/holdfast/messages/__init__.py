"""E-mail and text messages: sending them, rendering them, and the providers that deliver them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.messages.send_message import (
        Sending,
        asend_email,
        asend_sms,
        find_email,
        find_sms,
        send_email,
        send_sms,
    )
    from holdfast.messages.templates import Template

__all__ = [
    "Sending",
    "Template",
    "asend_email",
    "asend_sms",
    "find_email",
    "find_sms",
    "send_email",
    "send_sms",
]


def __getattr__(name: str) -> Any:
    """Import a name on first use: workers that only deliver messages need none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'holdfast.messages' has no attribute {name!r}")
    home = "templates" if name == "Template" else "send_message"
    found = getattr(import_module(f"holdfast.messages.{home}"), name)
    globals()[name] = found
    return found
