"""A ticket: a signed note that lets its holder wait for one task or process, for a while, and nothing else.

Signed by the application, checked by `holdfast serve`, without a word to the database: both have the secret.
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
LONGEST = timedelta(days=7)

Subject = UUID | tuple[str, int]
"""The task, or the name and the id of the process, that a ticket is good for."""
_SHAPE = re.compile(r"(?P<expires>[0-9]{1,12})\.(?P<signature>[A-Za-z0-9_-]{43})", re.ASCII)


def issue(secrets: Sequence[str], subject: Subject, ttl: timedelta, now: float) -> str:
    """`now` is the time of this machine: a ticket is a promise between two of them, and nothing stored."""
    if not secrets:
        raise ConfigurationError(
            "a ticket cannot be signed: there is no HOLDFAST_WEB_SECRET",
            hint="Give the application and holdfast serve the same one: openssl rand -hex 32",
        )
    if not timedelta(seconds=1) <= ttl <= LONGEST:
        raise InvalidArgument(f"ttl {ttl} is not between a second and {LONGEST.days} days")
    expires = int(now + ttl.total_seconds())
    return f"{expires}.{_signed(secrets[0], subject, expires)}"


def expiry(secrets: Sequence[str], subject: Subject, ticket: str, now: float) -> int | None:
    """When it ends, if it is good for this task or process."""
    match = _SHAPE.fullmatch(ticket)
    if match is None:
        return None
    expires = int(match["expires"])
    given = match["signature"].encode()
    # Every secret is tried, and compared in constant time: what takes longer tells nothing.
    good = [hmac.compare_digest(_signed(secret, subject, expires).encode(), given) for secret in secrets]
    return expires if any(good) and now < expires else None


def wait_url(base: str | None, subject: Subject, ticket: str) -> str:
    if base is None:
        raise ConfigurationError(
            "nobody knows where to wait: there is no HOLDFAST_WEB_URL",
            hint="Set it to the address of holdfast serve, such as https://tasks.example.com",
        )
    return f"{base}/v1/{_path(subject)}/wait?ticket={ticket}"


def _path(subject: Subject) -> str:
    return f"tasks/{subject}" if isinstance(subject, UUID) else f"processes/{subject[0]}/{subject[1]}"


def _signed(secret: str, subject: Subject, expires: int) -> str:
    note = f"holdfast wait\n{_path(subject)}\n{expires}".encode()
    digest = hmac.new(secret.encode(), note, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
