"""Messages as tests send them."""

from dataclasses import replace
from typing import Any

from holdfast.messages.provider import Email, Sms

EMAIL = Email(
    to="ada@example.org",
    subject="Hello",
    text="How are you?",
    html=None,
    sender="Shop <shop@example.com>",
    reply_to=None,
    headers={},
    idempotency_key="email-1",
)
SMS = Sms(to="+4915112345678", text="Hello", sender="+15005550006", idempotency_key="sms-1")


def email(**fields: Any) -> Email:
    return replace(EMAIL, **fields)


def sms(**fields: Any) -> Sms:
    return replace(SMS, **fields)
