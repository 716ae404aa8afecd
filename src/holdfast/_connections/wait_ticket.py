"""Tickets: a signed token that lets a front end wait for one task or process, for a limited time.

The application signs and `holdfast serve` verifies, both with HOLDFAST_WEB_SECRET. Nothing is stored.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from holdfast.errors import ConfigurationError, InvalidArgument

WAIT_TTL = timedelta(minutes=15)
"""How long a ticket is valid unless the caller decides."""
MAX_TTL = timedelta(days=7)

Subject = UUID | tuple[str, int]
"""The task, or the name and id of the process, that a ticket is valid for."""
_TICKET = re.compile(r"(?P<expires>[0-9]{1,12})\.(?P<signature>[A-Za-z0-9_-]{43})", re.ASCII)


def issue(secrets: Sequence[str], subject: Subject, ttl: timedelta, now: float) -> str:
    """Signs with the first secret. `now` is the clock of this machine, as in `expiry`."""
    if not secrets:
        raise ConfigurationError(
            "a ticket cannot be signed: HOLDFAST_WEB_SECRET is not set",
            hint="Set the same secret for the application and for holdfast serve: openssl rand -hex 32",
        )
    if not timedelta(seconds=1) <= ttl <= MAX_TTL:
        raise InvalidArgument(f"ttl must be between 1 second and {MAX_TTL.days} days, and {ttl} is not")
    expires = int(now + ttl.total_seconds())
    return f"{expires}.{_signature(secrets[0], subject, expires)}"


def expiry(secrets: Sequence[str], subject: Subject, ticket: str, now: float) -> int | None:
    """When the ticket expires; None if it is not valid for this subject, or expired."""
    match = _TICKET.fullmatch(ticket)
    if match is None:
        return None
    expires = int(match["expires"])
    given = match["signature"].encode()
    # All secrets are compared, each in constant time: the time taken reveals nothing.
    good = [hmac.compare_digest(_signature(secret, subject, expires).encode(), given) for secret in secrets]
    return expires if any(good) and now < expires else None


def wait_url(base: str | None, subject: Subject, ticket: str) -> str:
    if base is None:
        raise ConfigurationError(
            "the URL to wait at is unknown: HOLDFAST_WEB_URL is not set",
            hint="Set it to the URL of holdfast serve, such as https://tasks.example.com",
        )
    return f"{base}/v1/{_path(subject)}/wait?ticket={ticket}"


def _path(subject: Subject) -> str:
    return f"tasks/{subject}" if isinstance(subject, UUID) else f"processes/{subject[0]}/{subject[1]}"


def _signature(secret: str, subject: Subject, expires: int) -> str:
    note = f"holdfast wait\n{_path(subject)}\n{expires}".encode()
    digest = hmac.new(secret.encode(), note, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
