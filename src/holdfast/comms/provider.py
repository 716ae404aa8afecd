"""What a provider of e-mail or text messages has to do, and how it says that it could not.

A provider sends one message and returns at once. It neither retries nor waits: the caller decides that from
what `SendFailed` says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Email:
    """One e-mail to one address. Without a sender, the provider's own is taken."""

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
    """The provider has taken the message over."""

    provider: str
    message_id: str | None
    detail: dict[str, Any] = field(default_factory=dict)


class SendFailed(Exception):
    """The message was not sent, or it is unknown whether it was.

    `kind` is a short word for programs, the message is for people and holds no secret. `permanent` says that
    another attempt with the same message would fail as well. `retry_after` is how many seconds the provider
    asks the caller to wait. `outcome_unknown` says that the provider had the request and did not clearly
    refuse it: it may have sent the message. Another attempt may then deliver it twice, unless it is made
    under the same idempotency key while the provider still recognises it.
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
    """One for the life of a worker, used by many tasks at once."""

    @property
    def name(self) -> str:
        """As in the settings."""

    @property
    def key_retention(self) -> timedelta | None:
        """For how long a message that is sent again under its key is delivered once; None without keys."""

    async def send(self, email: Email) -> Sent:
        """Raises SendFailed, and nothing else that is about the message or the provider."""

    async def close(self) -> None:
        """No message is sent any more."""


class SmsProvider(Protocol):
    """The same for text messages."""

    @property
    def name(self) -> str: ...

    @property
    def key_retention(self) -> timedelta | None: ...

    async def send(self, sms: Sms) -> Sent: ...

    async def close(self) -> None: ...
