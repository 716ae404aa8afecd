"""The provider for development: stores messages in the database instead of sending them."""

from datetime import timedelta

from holdfast._engine import Statement
from holdfast._engine.messages import keep_message
from holdfast.errors import HoldfastError
from holdfast.messages.provider import Email, SendFailed, Sent, Sms
from holdfast.messages.providers.admission import provider_pool
from holdfast.settings import Settings


class _MailboxProvider:
    name = "mailbox"
    key_retention = timedelta(days=1)

    def __init__(self, settings: Settings) -> None:
        self._pool = provider_pool(settings)

    async def close(self) -> None:
        self._pool.close()

    async def _store(self, statement: Statement[int]) -> Sent:
        try:
            stored = await self._pool.run(lambda engine: engine.run(statement), repeatable=True)
        except HoldfastError as error:
            raise SendFailed("unavailable", f"the mailbox cannot be reached: {error}") from error
        return Sent(self.name, str(stored))


class EmailMailbox(_MailboxProvider):
    async def send(self, email: Email) -> Sent:
        return await self._store(
            keep_message(
                "email",
                email.to,
                email.idempotency_key,
                sender=email.sender,
                subject=email.subject,
                text_body=email.text,
                html_body=email.html,
                reply_to=email.reply_to,
                headers=email.headers,
            )
        )


class SmsMailbox(_MailboxProvider):
    async def send(self, sms: Sms) -> Sent:
        return await self._store(
            keep_message("sms", sms.to, sms.idempotency_key, sender=sms.sender, text_body=sms.text)
        )
