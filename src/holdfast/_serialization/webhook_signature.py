"""Signs and verifies messages as described by Standard Webhooks.

A signature covers the id, the timestamp and the body. A message may have several signatures, one per secret,
so that a secret can be replaced without an interruption. A CloudEvent in binary mode has its attributes in
headers: for each secret it has a second signature that covers these, too, and that other libraries ignore.
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
_MAX_DIGITS = 15  # more than any timestamp has


def new_secret() -> str:
    return PREFIX + base64.b64encode(random_source.token_bytes(_SECRET_BYTES)).decode()


def decode_secret(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX) + "==")
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ConfigurationError(
            "a webhook secret is not valid base64", hint=f"It should begin with {PREFIX}."
        )
    return key


def attribute_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that state attributes of a CloudEvent in binary mode; none in structured mode."""
    lowered = {name.lower(): value for name, value in headers.items()}
    attributes = {name: value for name, value in lowered.items() if name.startswith("ce-")}
    return attributes | {"content-type": lowered.get("content-type", "")} if attributes else {}


def signature_headers(
    message_id: str,
    body: bytes,
    secrets: Iterable[str],
    *,
    attributes: Mapping[str, str] | None = None,
    now: float | None = None,
) -> dict[str, str]:
    """The headers webhook-id, webhook-timestamp and, if there is a secret, webhook-signature."""
    timestamp = int(time.time() if now is None else now)
    keys = [decode_secret(secret) for secret in secrets]
    covered = [None, attributes] if attributes else [None]
    signatures = [_signature(key, message_id, timestamp, body, given) for given in covered for key in keys]
    headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
    return headers | {"webhook-signature": " ".join(signatures)} if signatures else headers


def check_signature(
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Sequence[str],
    *,
    attributes: Mapping[str, str] | None = None,
    tolerance: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> str:
    """Return the id of the message, or raise InvalidSignature unless one of the secrets matches.

    Where there are attributes, only a signature that covers them matches.
    """
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
    expected = [
        _signature(decode_secret(secret), message_id, int(sent_at), body, attributes) for secret in accepted
    ]
    # Compare every pair, each in constant time.
    matches = [
        hmac.compare_digest(one.encode(), other.encode())
        for one in expected
        for other in signatures.split(" ")
    ]
    if not any(matches):
        raise InvalidSignature("no signature of the request matches")
    return message_id


def _signature(
    key: bytes, message_id: str, timestamp: int, body: bytes, attributes: Mapping[str, str] | None
) -> str:
    # No header contains a line break, so the text before the body has only one meaning.
    stated = "".join(f"{name}:{value}\n" for name, value in sorted((attributes or {}).items()))
    signed = f"{message_id}.{timestamp}.{stated}".encode() + body
    version = "v1ce" if attributes else "v1"
    return f"{version}," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
