"""Signatures, with the public library as the judge."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from holdfast._serialization.webhook_signature import check_signature, new_secret, signature_headers
from holdfast.errors import ConfigurationError, InvalidSignature

ID = "01a1e214-96b1-734b-a098-65c0b72e36ae"


@given(st.text().map(str.encode))
def test_the_public_library_accepts_what_we_sign(body: bytes) -> None:
    secret = new_secret()

    Webhook(secret).verify(body, signature_headers(ID, body, [secret]), json_parse=False)


def test_each_of_several_secrets_fits() -> None:
    old, new = new_secret(), new_secret()
    headers = signature_headers(ID, b"{}", [new, old])

    for secret in (old, new):
        Webhook(secret).verify(b"{}", headers)
        assert check_signature(headers, b"{}", secret) == ID
    assert check_signature(headers, b"{}", [new_secret(), old]) == ID


def test_we_accept_what_the_public_library_signs() -> None:
    from datetime import UTC, datetime

    secret, now = new_secret(), datetime.now(UTC)
    signature = Webhook(secret).sign(ID, now, '{"n": 1}')
    headers = {
        "Webhook-Id": ID,
        "Webhook-Timestamp": str(int(now.timestamp())),
        "Webhook-Signature": f"v1a,unknown {signature}",
    }

    assert check_signature(headers, b'{"n": 1}', secret) == ID


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "another"},
        {"webhook-id": ""},
        {"webhook-timestamp": "0"},
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "9" * 16},
        {"webhook-timestamp": "9" * 309},
        {"webhook-timestamp": "9" * 5000},
        {"webhook-timestamp": str(int(time.time()) - 301)},
        {"webhook-timestamp": str(int(time.time()) + 400)},
        {"webhook-timestamp": "\u0661"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1,AAAA v1,é"},
    ],
)
def test_nobody_accepts_what_was_changed(change: dict[str, str]) -> None:
    secret = new_secret()
    headers = signature_headers(ID, b"{}", [secret]) | change

    with pytest.raises(InvalidSignature):
        check_signature(headers, b"{}", secret)


def test_a_changed_body_or_another_secret_is_refused() -> None:
    secret = new_secret()
    headers = signature_headers(ID, b"{}", [secret])

    for body, other in ((b"{ }", secret), (b"{}", new_secret())):
        with pytest.raises(InvalidSignature, match="matches"):
            check_signature(headers, body, other)
        with pytest.raises(WebhookVerificationError):
            Webhook(other).verify(body, headers, json_parse=False)


def test_without_a_secret_there_is_no_signature() -> None:
    headers = signature_headers(ID, b"{}", [])

    assert "webhook-signature" not in headers
    with pytest.raises(InvalidSignature, match="not signed"):
        check_signature(headers, b"{}", new_secret())


def test_a_secret_that_is_none_is_refused() -> None:
    for secret in ("", "whsec_", "whsec_é"):
        with pytest.raises(ConfigurationError):
            signature_headers(ID, b"{}", [secret])
