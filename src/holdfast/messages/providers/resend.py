"""Sends e-mail through Resend, which honours idempotency keys for 24 hours."""

from datetime import timedelta
from typing import Any

from holdfast.messages.message_checks import parse_address
from holdfast.messages.provider import Email, Sent, required_sender, required_setting
from holdfast.messages.providers.http_api import ProviderApi, json_body, required_id
from holdfast.settings import Settings

# Another request with the same key is still in progress.
_CONCURRENT = "concurrent_idempotent_requests"


class Resend:
    name = "resend"
    key_retention = timedelta(hours=24)

    def __init__(self, settings: Settings) -> None:
        key = required_setting(settings, "resend_api_key", self.name).get_secret_value()
        self._authorization = {"authorization": f"Bearer {key}"}
        self._api = ProviderApi("Resend", settings, settings.resend_url)

    async def send(self, email: Email) -> Sent:
        response = await self._api.post(
            "/emails",
            json=_request_body(email),
            headers=self._authorization | {"idempotency-key": email.idempotency_key},
        )
        body = json_body(response)
        if response.is_success:
            return Sent(self.name, required_id(response, "id", "Resend"), {"status": response.status_code})
        code = str(body.get("name", ""))
        temporary = True if code == _CONCURRENT else None
        raise self._api.failure(
            response, code, str(body.get("message", "no explanation")), temporary=temporary
        )

    async def close(self) -> None:
        await self._api.close()


def _request_body(email: Email) -> dict[str, Any]:
    sender = required_sender(email.sender, "email_sender")
    fields = {
        "from": str(parse_address("sender", sender)),
        "to": [email.to],
        "subject": email.subject,
        "text": email.text,
        "html": email.html,
        "reply_to": str(parse_address("reply_to", email.reply_to)) if email.reply_to else None,
        "headers": dict(email.headers) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}
