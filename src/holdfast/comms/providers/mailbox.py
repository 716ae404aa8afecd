"""The provider for development: it sends nothing, and keeps messages in the database for people to read."""

from datetime import timedelta

from holdfast.comms.provider import Email, SendFailed, Sent, Sms
from holdfast.comms.providers.caps import link_to
from holdfast.engine import Statement
from holdfast.engine.messages import keep_message
from holdfast.errors import HoldfastError
from holdfast.settings import Settings


class _Mailbox:
    name = "mailbox"
    key_retention = timedelta(days=1)

    def __init__(self, settings: Settings) -> None:
        self._link = link_to(settings)

    async def close(self) -> None:
        self._link.close()

    async def _keep(self, statement: Statement[int]) -> Sent:
        try:
            kept = await self._link.run(lambda engine: engine.run(statement), repeatable=True)
        except HoldfastError as error:
            raise SendFailed("unavailable", f"the mailbox cannot be reached: {error}") from error
        return Sent(self.name, str(kept))


class EmailMailbox(_Mailbox):
    async def send(self, email: Email) -> Sent:
        return await self._keep(
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


class SmsMailbox(_Mailbox):
    async def send(self, sms: Sms) -> Sent:
        return await self._keep(
            keep_message("sms", sms.to, sms.idempotency_key, sender=sms.sender, text_body=sms.text)
        )
