"""What holds for every provider: no message reaches it that is malformed, not allowed or one too many."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.comms.message_checks import check_email, check_sms, check_sms_sender, parse_mailbox
from holdfast.comms.provider import Email, EmailProvider, SendFailed, Sent, Sms, SmsProvider
from holdfast.comms.providers.caps import Caps
from holdfast.errors import ConfigurationError, InvalidArgument
from holdfast.settings import Settings, variable_of

MAILBOX = "mailbox"


class GuardedEmail:
    """`admit` refuses before the provider is called, `send` calls it: what fails in `admit` was not sent."""

    def __init__(self, provider: EmailProvider, settings: Settings) -> None:
        self.name = provider.name
        self.key_retention = provider.key_retention
        self._provider = provider
        self._caps = Caps("email", settings)
        self._sender = settings.email_sender
        _check_setting("email_sender", self._sender, parse_mailbox)

    async def admit(self, email: Email) -> Email:
        whole = replace(email, sender=email.sender or self._sender)
        _refuse_malformed(check_email, whole)
        await self._caps.reserve(whole.to, whole.idempotency_key)
        return whole

    async def send(self, admitted: Email) -> Sent:
        return await self._provider.send(admitted)

    async def close(self) -> None:
        await self._provider.close()
        await self._caps.close()


class GuardedSms:
    def __init__(self, provider: SmsProvider, settings: Settings) -> None:
        self.name = provider.name
        self.key_retention = provider.key_retention
        self._provider = provider
        self._caps = Caps("sms", settings)
        self._sender = settings.sms_sender
        self._countries = settings.sms_countries
        _check_setting("sms_sender", self._sender, check_sms_sender)

    async def admit(self, sms: Sms) -> Sms:
        whole = replace(sms, sender=sms.sender or self._sender)
        _refuse_malformed(check_sms, whole)
        self._refuse_country(whole.to)
        await self._caps.reserve(whole.to, whole.idempotency_key)
        return whole

    async def send(self, admitted: Sms) -> Sent:
        return await self._provider.send(admitted)

    async def close(self) -> None:
        await self._provider.close()
        await self._caps.close()

    def _refuse_country(self, number: str) -> None:
        """A mailbox texts nobody, so that nobody has to list countries to try things out."""
        if self.name != MAILBOX and not number.startswith(self._countries):
            raise SendFailed(
                "country_not_allowed",
                f"{number[:4]}… may not be texted: it begins like nothing in {variable_of('sms_countries')}",
                permanent=True,
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
