"""Checks every message before a provider gets it: its fields, its country and the caps on messages.

The database counts messages, so the caps hold across all workers and after a crash.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast._connections.pool import AsyncPool
from holdfast._connections.session import DatabaseAddress
from holdfast._engine import messages
from holdfast._engine.messages import Reservation
from holdfast._install.postgres.database_url import resolve_database_url
from holdfast.errors import ConfigurationError, HoldfastError, InvalidArgument
from holdfast.messages.message_checks import check_email, check_sms, check_sms_sender, parse_address
from holdfast.messages.provider import Email, EmailProvider, SendFailed, Sent, Sms, SmsProvider
from holdfast.settings import Settings, variable_of

MAILBOX = "mailbox"
_SCOPES = {"recipient": "to one recipient", "country": "to one country", "all": "in total"}


class CheckedEmailProvider:
    """`admit` checks a message before `send` calls the provider: if `admit` fails, nothing was sent."""

    def __init__(self, provider: EmailProvider, settings: Settings) -> None:
        self.name = provider.name
        self.key_retention = provider.key_retention
        self._provider = provider
        self._caps = SendCaps("email", settings)
        self._sender = settings.email_sender
        _check_setting("email_sender", self._sender, parse_address)

    async def admit(self, email: Email) -> Email:
        admitted = replace(email, sender=email.sender or self._sender)
        _refuse_malformed(check_email, admitted)
        await self._caps.reserve(admitted.to, admitted.idempotency_key)
        return admitted

    async def send(self, admitted: Email) -> Sent:
        return await self._provider.send(admitted)

    async def close(self) -> None:
        await self._provider.close()
        await self._caps.close()


class CheckedSmsProvider:
    def __init__(self, provider: SmsProvider, settings: Settings) -> None:
        self.name = provider.name
        self.key_retention = provider.key_retention
        self._provider = provider
        self._caps = SendCaps("sms", settings)
        self._sender = settings.sms_sender
        self._countries = settings.sms_countries
        _check_setting("sms_sender", self._sender, check_sms_sender)

    async def admit(self, sms: Sms) -> Sms:
        admitted = replace(sms, sender=sms.sender or self._sender)
        _refuse_malformed(check_sms, admitted)
        self._refuse_country(admitted.to)
        await self._caps.reserve(admitted.to, admitted.idempotency_key)
        return admitted

    async def send(self, admitted: Sms) -> Sent:
        return await self._provider.send(admitted)

    async def close(self) -> None:
        await self._provider.close()
        await self._caps.close()

    def _refuse_country(self, number: str) -> None:
        """The mailbox sends nothing, so it works without a list of countries."""
        if self.name != MAILBOX and not number.startswith(self._countries):
            raise SendFailed(
                "country_not_allowed",
                f"text messages to {number[:4]}… are not allowed: no prefix in {variable_of('sms_countries')}"
                " matches",
                permanent=True,
            )


class SendCaps:
    """Counts each message once, under its idempotency key, before it is sent."""

    def __init__(self, channel: str, settings: Settings) -> None:
        self._channel = channel
        self._pool = provider_pool(settings)

    async def reserve(self, recipient: str, idempotency_key: str) -> None:
        """Raise SendFailed if a cap is reached or cannot be checked."""
        try:
            reservation = await self._pool.run(
                lambda engine: engine.run(messages.reserve_send(self._channel, recipient, idempotency_key)),
                repeatable=True,
            )
        except HoldfastError as error:
            raise SendFailed("unavailable", f"the caps cannot be checked: {error}") from error
        if not reservation.reserved:
            raise _cap_reached(self._channel, reservation)

    async def close(self) -> None:
        self._pool.close()


def provider_pool(settings: Settings) -> AsyncPool:
    """Connections of the provider itself, opened on first use."""
    return AsyncPool(
        DatabaseAddress(lambda: resolve_database_url(settings)),
        reply_seconds=settings.call_timeout.total_seconds(),
    )


def _cap_reached(channel: str, cap: Reservation) -> SendFailed:
    scope = _SCOPES.get(cap.scope or "", cap.scope)
    return SendFailed(
        "cap_reached",
        f"at most {cap.most} {channel} messages may be sent {scope} in {cap.period}",
        retry_after=cap.retry_after.total_seconds() if cap.retry_after else None,
    )


def _refuse_malformed(check: Callable[[Any], None], message: Email | Sms) -> None:
    try:
        check(message)
    except InvalidArgument as error:
        raise SendFailed("malformed", str(error), permanent=True) from error


def _check_setting(name: str, value: str | None, check: Callable[[str, str], object]) -> None:
    if value is None:
        return
    try:
        check(variable_of(name), value)
    except InvalidArgument as error:
        raise ConfigurationError(error.message, hint=error.hint) from None
