"""POST /v1/deliveries/{provider}: only signed reports of providers are accepted."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from holdfast._serialization.webhook_signature import new_secret, signature_headers
from holdfast.errors import ConfigurationError
from holdfast.messages.delivery_reports import report_readers
from holdfast.settings import Settings
from support.comms import CHANNELS, Channel
from support.database import Database
from support.web import Web, serving

EMAIL, SMS = CHANNELS
OLD_SECRET, SECRET = new_secret(), new_secret()
TOKEN = "a-token-for-tests"  # noqa: S105 - guards nothing
CALLBACK = "https://tasks.example.com/v1/deliveries/twilio"


@pytest.fixture(scope="module")
def web(module_db: Database) -> Iterator[Web]:
    with serving(
        module_db,
        resend_webhook_secret=f"{OLD_SECRET},{SECRET}",
        twilio_auth_token=TOKEN,
        twilio_status_callback=CALLBACK,
    ) as running:
        yield running


@pytest.fixture
def client(web: Web) -> httpx.Client:
    return web.client()


def _sent(web: Web, channel: Channel, provider: str, message_id: str) -> int:
    conn = web.database.connect()
    send = channel.kick_off(conn)
    channel.supervise(conn, send)
    outcome = {
        "original_payload": {f"{channel.root}_id": send},
        "worker_payload": {"provider": provider, "message_id": message_id},
    }
    conn.execute(f"select {channel.handler('success')}(%s)".encode(), [json.dumps(outcome)])
    return send


def _delivery(web: Web, channel: Channel, send: int) -> Any:
    return channel.status(web.database.connect(), send)["delivery"]


def _resend(client: httpx.Client, event: Any, *, secret: str = SECRET, now: float | None = None) -> int:
    body = json.dumps(event).encode()
    signed = signature_headers("msg_1", body, [secret], now=now)
    headers = {name.replace("webhook-", "svix-"): value for name, value in signed.items()}
    headers["content-type"] = "application/json"
    return client.post("/v1/deliveries/resend", content=body, headers=headers).status_code


def _twilio(client: httpx.Client, fields: dict[str, str], *, token: str = TOKEN, url: str = CALLBACK) -> int:
    signed = url + "".join(name + fields[name] for name in sorted(fields))
    signature = base64.b64encode(hmac.digest(token.encode(), signed.encode(), hashlib.sha1)).decode()
    headers = {"x-twilio-signature": signature, "content-type": "application/x-www-form-urlencoded"}
    return client.post("/v1/deliveries/twilio", content=urlencode(fields), headers=headers).status_code


def _event(kind: str, message_id: str) -> dict[str, Any]:
    bounce = {"type": "Permanent", "subType": "General", "message": "550 <ada@example.org> unknown"}
    return {"type": kind, "data": {"email_id": message_id, "to": ["ada@example.org"], "bounce": bounce}}


@pytest.mark.parametrize(
    ("kind", "delivery"),
    [
        ("email.delivered", "delivered"),
        ("email.bounced", "bounced"),
        ("email.complained", "complained"),
        ("email.opened", None),
    ],
)
def test_a_report_of_resend_is_recorded(
    web: Web, client: httpx.Client, kind: str, delivery: str | None
) -> None:
    send = _sent(web, EMAIL, "resend", f"id-{kind}")

    assert [_resend(client, _event(kind, f"id-{kind}")) for _ in range(2)] == [204, 204]

    assert _delivery(web, EMAIL, send) == delivery


def test_the_text_of_a_bounce_is_not_stored(web: Web, client: httpx.Client) -> None:
    send = _sent(web, EMAIL, "resend", "id-words")
    _resend(client, _event("email.bounced", "id-words"))

    facts = web.database.connect().execute(
        "select reason from comms.send_email_task_reported where send_email_task_id = %s", [send]
    )
    assert facts.fetchall() == [("Permanent/General",)]


@pytest.mark.parametrize(
    ("status", "delivery"),
    [("delivered", "delivered"), ("undelivered", "bounced"), ("failed", "bounced"), ("sent", None)],
)
def test_a_report_of_twilio_is_recorded(
    web: Web, client: httpx.Client, status: str, delivery: str | None
) -> None:
    send = _sent(web, SMS, "twilio", f"SM{status}")

    fields = {"MessageSid": f"SM{status}", "MessageStatus": status, "To": "+4915112345678", "ErrorCode": ""}
    assert _twilio(client, fields) == 204

    assert _delivery(web, SMS, send) == delivery


def test_a_report_about_an_unknown_message_is_accepted_and_ignored(client: httpx.Client) -> None:
    assert _resend(client, _event("email.delivered", "of-another-application")) == 204
    assert _twilio(client, {"MessageSid": "SMother", "MessageStatus": "delivered"}) == 204


def test_a_report_without_a_valid_signature_changes_nothing(web: Web, client: httpx.Client) -> None:
    mail, text = _sent(web, EMAIL, "resend", "id-forged"), _sent(web, SMS, "twilio", "SMforged")
    event, fields = (
        _event("email.bounced", "id-forged"),
        {"MessageSid": "SMforged", "MessageStatus": "failed"},
    )

    assert _resend(client, event, secret=new_secret()) == 403
    assert _resend(client, event, now=time.time() - 3600) == 403
    assert _twilio(client, fields, token="another") == 403  # noqa: S106 - guards nothing
    assert _twilio(client, fields, url="https://elsewhere.example.com/") == 403
    for provider in ("resend", "twilio"):
        assert client.post(f"/v1/deliveries/{provider}", content=json.dumps(event)).status_code == 403
    assert (_delivery(web, EMAIL, mail), _delivery(web, SMS, text)) == (None, None)


@pytest.mark.parametrize("timestamp", ["9" * 309, "9" * 5000, "-1", "x", ""])
def test_a_malformed_timestamp_is_rejected(client: httpx.Client, timestamp: str) -> None:
    headers = {"svix-id": "m", "svix-timestamp": timestamp, "svix-signature": "v1,x"}
    assert client.post("/v1/deliveries/resend", content=b"{}", headers=headers).status_code == 403


@pytest.mark.parametrize("event", [[], "x", {}, {"type": "email.delivered"}, {"type": 7, "data": 7}])
def test_a_signed_body_of_another_kind_is_ignored(client: httpx.Client, event: Any) -> None:
    assert _resend(client, event) == 204


def test_a_secret_is_replaced_without_a_gap(client: httpx.Client) -> None:
    assert _resend(client, _event("email.delivered", "x"), secret=OLD_SECRET) == 204


def test_a_large_body_is_rejected_before_it_is_read_completely(client: httpx.Client) -> None:
    assert client.post("/v1/deliveries/resend", content=b"x" * 70_000).status_code == 413


def test_a_provider_that_is_not_configured_is_not_found(client: httpx.Client) -> None:
    assert client.post("/v1/deliveries/pigeon", content=b"{}").status_code == 404


def test_a_malformed_secret_is_rejected_at_startup() -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_RESEND_WEBHOOK_SECRET is invalid") as refusal:
        report_readers(Settings.load(resend_webhook_secret="hush-hush!"))  # noqa: S106 - guards nothing
    assert "hush-hush" not in str(refusal.value)
