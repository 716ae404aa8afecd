"""E-mail through Resend's HTTP API, which sends a message once per idempotency key for 24 hours."""

from datetime import timedelta
from typing import Any

from holdfast.comms.message_checks import parse_mailbox
from holdfast.comms.provider import Email, Sent
from holdfast.comms.providers.http_api import Api, body_of, id_in
from holdfast.comms.providers.required import required, required_sender
from holdfast.settings import Settings

# The first request with the key is still under way; its answer is the answer to both.
_CONCURRENT = "concurrent_idempotent_requests"


class Resend:
    name = "resend"
    key_retention = timedelta(hours=24)

    def __init__(self, settings: Settings) -> None:
        key = required(settings, "resend_api_key", self.name).get_secret_value()
        self._authorization = {"authorization": f"Bearer {key}"}
        self._api = Api("Resend", settings, settings.resend_url)

    async def send(self, email: Email) -> Sent:
        answer = await self._api.post(
            "/emails",
            json=_written(email),
            headers=self._authorization | {"idempotency-key": email.idempotency_key},
        )
        body = body_of(answer)
        if answer.is_success:
            return Sent(self.name, id_in(answer, "id", "Resend"), {"status": answer.status_code})
        code = str(body.get("name", ""))
        passing = True if code == _CONCURRENT else None
        raise self._api.failure(answer, code, str(body.get("message", "no explanation")), passing=passing)

    async def close(self) -> None:
        await self._api.close()


def _written(email: Email) -> dict[str, Any]:
    sender = required_sender(email.sender, "email_sender")
    fields = {
        "from": str(parse_mailbox("sender", sender)),
        "to": [email.to],
        "subject": email.subject,
        "text": email.text,
        "html": email.html,
        "reply_to": str(parse_mailbox("reply_to", email.reply_to)) if email.reply_to else None,
        "headers": dict(email.headers) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}
