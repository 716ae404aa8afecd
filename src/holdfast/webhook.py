"""Standard Webhooks: signatures of what is sent, and their check by whoever receives it.

Signed is the id, the time of sending and the body. There may be several signatures, one for each secret, so
that secrets can be replaced without a moment at which nothing fits.
"""

import base64
import binascii
import hashlib
import hmac
import secrets as random_source
import time
from collections.abc import Iterable, Mapping, Sequence

from holdfast.errors import ConfigurationError, InvalidSignature

PREFIX = "whsec_"
TOLERANCE_SECONDS = 300
_SECRET_BYTES = 32
_MAX_DIGITS = 15  # more than a time has, and few enough to count with


def new_secret() -> str:
    return PREFIX + base64.b64encode(random_source.token_bytes(_SECRET_BYTES)).decode()


def key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX) + "==")
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ConfigurationError("a webhook secret is not base64", hint=f"It begins with {PREFIX}.")
    return key


def signature_headers(
    message_id: str, body: bytes, secrets: Iterable[str], *, now: float | None = None
) -> dict[str, str]:
    """The three headers; without a secret, the one that needs none."""
    timestamp = int(time.time() if now is None else now)
    signatures = [_signature(key_of(secret), message_id, timestamp, body) for secret in secrets]
    headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
    return headers | {"webhook-signature": " ".join(signatures)} if signatures else headers


def check_signature(
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Sequence[str],
    *,
    tolerance: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> str:
    """Answers the id of the message, or raises InvalidSignature. One of the secrets has to fit."""
    given = {name.lower(): value for name, value in headers.items()}
    message_id, sent_at, signatures = (
        given.get(name, "") for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    )
    if not (message_id and sent_at and signatures):
        raise InvalidSignature("the request is not signed: it lacks a webhook header")
    if not sent_at.isascii() or not sent_at.isdigit() or len(sent_at) > _MAX_DIGITS:
        raise InvalidSignature("webhook-timestamp is not a number of seconds")
    if abs((time.time() if now is None else now) - int(sent_at)) > tolerance:
        raise InvalidSignature("the request was signed too long ago, or in the future")
    accepted = [secrets] if isinstance(secrets, str) else list(secrets)
    expected = [_signature(key_of(secret), message_id, int(sent_at), body) for secret in accepted]
    # Every pair is compared, and each in constant time.
    fits = [
        hmac.compare_digest(one.encode(), other.encode())
        for one in expected
        for other in signatures.split(" ")
    ]
    if not any(fits):
        raise InvalidSignature("no signature of the request fits")
    return message_id


def _signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
