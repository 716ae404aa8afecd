"""E-mail and text messages: sending them, rendering them, and the providers that deliver them."""

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
