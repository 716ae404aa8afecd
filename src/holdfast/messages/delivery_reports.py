"""Verifies and reads the delivery reports of providers.

A provider that accepted a message has not delivered it yet. A webhook reports later whether the message was
delivered, bounced or marked as spam. Free text of a report is not stored: it may contain the recipient's
address.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl

from holdfast._serialization.webhook_signature import PREFIX, check_signature, decode_secret
from holdfast.errors import ConfigurationError, InvalidSignature
from holdfast.settings import Settings, variable_of

MAX_REPORT_BYTES = 64 * 1024
_MAX_TIMESTAMP = 12  # digits

Delivery = Literal["delivered", "bounced", "complained"]


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """One report about one message, identified by the provider's id."""

    message_id: str
    delivery: Delivery
    reason: str | None


class ReportReader(Protocol):
    def read(self, headers: Mapping[str, str], body: bytes) -> DeliveryReport | None:
        """Return None for an unrelated report. Raise InvalidSignature unless the provider signed it."""


class ResendReports:
    """Webhooks of Resend, signed by Svix: https://resend.com/docs/dashboard/webhooks."""

    _DELIVERIES: Mapping[str, Delivery] = {
        "email.delivered": "delivered",
        "email.bounced": "bounced",
        "email.failed": "bounced",
        "email.complained": "complained",
    }

    def __init__(self, secrets: str) -> None:
        self._secrets = secrets.split(",")
        for secret in self._secrets:
            if not secret.startswith(PREFIX):
                raise ConfigurationError(f"it does not begin with {PREFIX}")
            decode_secret(secret)

    def read(self, headers: Mapping[str, str], body: bytes) -> DeliveryReport | None:
        given = {name.lower(): value for name, value in headers.items()}
        parts = ("id", "timestamp", "signature")
        signed = {f"webhook-{part}": given.get(f"svix-{part}", "") for part in parts}
        if len(signed["webhook-timestamp"]) > _MAX_TIMESTAMP:
            raise InvalidSignature("svix-timestamp is not a timestamp")
        check_signature(signed, body, self._secrets)
        event = _object(body)
        data = event.get("data")
        message_id = data.get("email_id") if isinstance(data, dict) else None
        delivery = self._DELIVERIES.get(str(event.get("type")))
        if delivery is None or not isinstance(message_id, str) or not isinstance(data, dict):
            return None
        return DeliveryReport(message_id, delivery, _bounce(data.get("bounce")))


class TwilioReports:
    """Status callbacks of Twilio: https://www.twilio.com/docs/usage/webhooks/webhooks-security."""

    _DELIVERIES: Mapping[str, Delivery] = {
        "delivered": "delivered",
        "undelivered": "bounced",
        "failed": "bounced",
    }

    def __init__(self, auth_token: str, url: str) -> None:
        self._key = auth_token.encode()
        self._url = url

    def read(self, headers: Mapping[str, str], body: bytes) -> DeliveryReport | None:
        given = {name.lower(): value for name, value in headers.items()}.get("x-twilio-signature", "")
        try:
            fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=100)
        except ValueError:
            raise InvalidSignature("the body is not a form") from None
        signed = self._url + "".join(name + value for name, value in sorted(set(fields)))
        expected = base64.b64encode(hmac.digest(self._key, signed.encode("utf-8", "replace"), hashlib.sha1))
        if not hmac.compare_digest(expected, given.encode("utf-8", "replace")):
            raise InvalidSignature("the signature of the request does not match")
        found = dict(fields)
        delivery = self._DELIVERIES.get(found.get("MessageStatus", ""))
        if delivery is None or not found.get("MessageSid"):
            return None
        code = found.get("ErrorCode", "")
        return DeliveryReport(found["MessageSid"], delivery, f"error {code[:20]}" if code else None)


def report_readers(settings: Settings) -> dict[str, ReportReader]:
    """The readers of all providers whose secrets are set. Raise ConfigurationError for an invalid one."""
    readers: dict[str, ReportReader] = {}
    if settings.resend_webhook_secret is not None:
        try:
            readers["resend"] = ResendReports(settings.resend_webhook_secret.get_secret_value())
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{variable_of('resend_webhook_secret')} is invalid: {error.message}", hint=error.hint
            ) from None
    if settings.twilio_status_callback is not None and settings.twilio_auth_token is not None:
        readers["twilio"] = TwilioReports(
            settings.twilio_auth_token.get_secret_value(), settings.twilio_status_callback
        )
    return readers


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _bounce(found: object) -> str | None:
    """The type of bounce, such as Permanent/General."""
    if not isinstance(found, dict):
        return None
    kinds = [found[name][:50] for name in ("type", "subType") if isinstance(found.get(name), str)]
    return "/".join(kinds) or None
