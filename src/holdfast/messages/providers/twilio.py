"""Sends text messages through Twilio, which has no idempotency keys: a repeated send arrives twice."""

import re
from typing import Any

import httpx

from holdfast.messages.provider import Sent, Sms, required_sender, required_setting
from holdfast.messages.providers.http_api import ProviderApi, json_body, required_id
from holdfast.settings import Settings

_SERVICE = re.compile("MG[0-9a-f]{32}")
# Temporary although the status is 400: the queue of the sender or of the carrier is full.
_TEMPORARY = {"14107", "21611", "30001", "30022"}


class Twilio:
    name = "twilio"
    key_retention = None

    def __init__(self, settings: Settings) -> None:
        account = required_setting(settings, "twilio_account_sid", self.name)
        token = required_setting(settings, "twilio_auth_token", self.name).get_secret_value()
        self._path = f"/2010-04-01/Accounts/{account}/Messages.json"
        self._callback = settings.twilio_status_callback
        self._api = ProviderApi("Twilio", settings, settings.twilio_url, httpx.BasicAuth(account, token))

    async def send(self, sms: Sms) -> Sent:
        response = await self._api.post(self._path, data=_form(sms, self._callback))
        body = json_body(response)
        if response.is_success:
            detail: dict[str, Any] = {name: body[name] for name in ("status", "num_segments") if name in body}
            return Sent(self.name, required_id(response, "sid", "Twilio"), detail)
        code = str(body.get("code", ""))
        temporary = True if code in _TEMPORARY else None
        raise self._api.failure(
            response, code, str(body.get("message", "no explanation")), temporary=temporary
        )

    async def close(self) -> None:
        await self._api.close()


def _form(sms: Sms, callback: str | None) -> dict[str, str]:
    sender = required_sender(sms.sender, "sms_sender")
    origin = "MessagingServiceSid" if _SERVICE.fullmatch(sender) else "From"
    fields = {"To": sms.to, origin: sender, "Body": sms.text}
    return fields | {"StatusCallback": callback} if callback else fields
