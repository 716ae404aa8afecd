"""The interface of providers, which send e-mail and text messages.

A provider makes one attempt to send one message. It neither retries nor waits: the caller decides that from
the attributes of `SendFailed`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from holdfast.errors import ConfigurationError
from holdfast.settings import Settings, variable_of


@dataclass(frozen=True, slots=True)
class Email:
    """One e-mail to one address. Without a sender, HOLDFAST_EMAIL_SENDER is used."""

    to: str
    subject: str
    text: str | None
    html: str | None
    sender: str | None
    reply_to: str | None
    headers: Mapping[str, str]
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class Sms:
    """One text message to one number in E.164 form: +4915112345678."""

    to: str
    text: str
    sender: str | None
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class Sent:
    """The provider accepted the message."""

    provider: str
    message_id: str | None
    detail: dict[str, Any] = field(default_factory=dict)


class SendFailed(Exception):
    """The message was not sent, or it is unknown whether it was sent.

    `kind` is a short code for programs. The message is for people and contains no secret. `permanent` means
    that another attempt with the same message would fail, too. `retry_after` is how many seconds the provider
    asks to wait. `outcome_unknown` means that the provider received the request and did not clearly
    refuse it, so it may have sent the message: another attempt may deliver it twice, unless it uses the same
    idempotency key while the provider still remembers it.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        permanent: bool = False,
        retry_after: float | None = None,
        outcome_unknown: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.permanent = permanent
        self.retry_after = retry_after
        self.outcome_unknown = outcome_unknown


class EmailProvider(Protocol):
    """A worker creates one provider and uses it for many tasks at once."""

    @property
    def name(self) -> str:
        """The name used in the settings."""

    @property
    def key_retention(self) -> timedelta | None:
        """How long the provider remembers idempotency keys. None if it does not support them."""

    async def send(self, email: Email) -> Sent:
        """Raise SendFailed for every failure of the message or the provider."""

    async def close(self) -> None:
        """Called when no more messages will be sent."""


class SmsProvider(Protocol):
    """Like EmailProvider, for text messages."""

    @property
    def name(self) -> str: ...

    @property
    def key_retention(self) -> timedelta | None: ...

    async def send(self, sms: Sms) -> Sent: ...

    async def close(self) -> None: ...


def required_setting(settings: Settings, name: str, provider: str) -> Any:
    value = getattr(settings, name)
    if value is None:
        raise ConfigurationError(f"{variable_of(name)} is not set", hint=f"The provider {provider} needs it.")
    return value


def required_sender(given: str | None, setting: str) -> str:
    if given is None:
        raise SendFailed(
            "rejected", f"the message has no sender, and {variable_of(setting)} is not set", permanent=True
        )
    return given
