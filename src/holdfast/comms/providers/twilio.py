"""Text messages through Twilio's HTTP API. It has no idempotency keys: what is sent twice arrives twice."""

import re
from typing import Any

import httpx

from holdfast.comms.provider import Sent, Sms
from holdfast.comms.providers.http_api import Api, body_of, id_in
from holdfast.comms.providers.required import required, required_sender
from holdfast.settings import Settings

_SERVICE = re.compile("MG[0-9a-f]{32}")
# Refused with 400 although they pass: the sender's queue is full, or the carrier's.
_PASSING = {"14107", "21611", "30001", "30022"}


class Twilio:
    name = "twilio"
    key_retention = None

    def __init__(self, settings: Settings) -> None:
        account = required(settings, "twilio_account_sid", self.name)
        token = required(settings, "twilio_auth_token", self.name).get_secret_value()
        self._path = f"/2010-04-01/Accounts/{account}/Messages.json"
        self._callback = settings.twilio_status_callback
        self._api = Api("Twilio", settings, settings.twilio_url, httpx.BasicAuth(account, token))

    async def send(self, sms: Sms) -> Sent:
        answer = await self._api.post(self._path, data=_written(sms, self._callback))
        body = body_of(answer)
        if answer.is_success:
            detail: dict[str, Any] = {name: body[name] for name in ("status", "num_segments") if name in body}
            return Sent(self.name, id_in(answer, "sid", "Twilio"), detail)
        code = str(body.get("code", ""))
        passing = True if code in _PASSING else None
        raise self._api.failure(answer, code, str(body.get("message", "no explanation")), passing=passing)

    async def close(self) -> None:
        await self._api.close()


def _written(sms: Sms, callback: str | None) -> dict[str, str]:
    sender = required_sender(sms.sender, "sms_sender")
    origin = "MessagingServiceSid" if _SERVICE.fullmatch(sender) else "From"
    fields = {"To": sms.to, origin: sender, "Body": sms.text}
    return fields | {"StatusCallback": callback} if callback else fields
