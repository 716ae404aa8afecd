"""Access tokens, sessions and scopes: what a caller may do, and the secrets that prove who it is.

Imports no web framework: the command line makes tokens, too.
"""

import base64
import hashlib
import re
import secrets
import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast._engine.access import Access, Scope
from holdfast.server.connection_limit import source_of

_PREFIX: Final = "hf_"
_TOKEN = re.compile(r"hf_[A-Za-z0-9_-]{43}", re.ASCII)

_IMPLIED: dict[str, frozenset[Scope]] = {
    "enqueue": frozenset(("enqueue",)),
    "read": frozenset(("read",)),
    "operate": frozenset(("operate", "read")),
    "admin": frozenset(("admin", "operate", "read", "enqueue")),
}

MAX_FAILURES = 10
MAX_RECORDED = 100
MAX_REMEMBERED = 10_000
WINDOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller."""

    name: str
    scopes: frozenset[Scope]
    token_id: int | None = None
    expires_at: datetime | None = None
    token_hash: bytes | None = None
    """Of the access token in the request: tasks enqueued with it belong to its namespace."""

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes


ANONYMOUS = Caller("anonymous", _IMPLIED["admin"])
"""Every caller of a server without logins, which listens on this machine only."""


def caller_of(access: Access, token_hash: bytes | None = None) -> Caller:
    scopes = frozenset(implied for scope in access.scopes for implied in _IMPLIED[scope])
    return Caller(access.name, scopes, access.token_id, access.expires_at, token_hash)


def new_token() -> str:
    """256 random bits. Secret scanners recognise the prefix."""
    return _PREFIX + secrets.token_urlsafe(32)


def new_session() -> str:
    return secrets.token_urlsafe(32)


def hash_of(secret: str) -> bytes:
    """What the database stores of a token or session. 256 random bits need neither salt nor a slow hash."""
    return hashlib.sha256(secret.encode()).digest()


def looks_like_token(given: str) -> bool:
    return _TOKEN.fullmatch(given) is not None


def csrf_of(session: str) -> str:
    """The CSRF token of the forms of a session, derived from its cookie."""
    digest = hashlib.sha256(f"holdfast form\n{session}".encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def same_secret(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(), other.encode())


class LoginThrottle:
    """Failed logins of the last minute.

    An address with too many failures has to wait. Tokens cannot be guessed, so failures from elsewhere never
    keep out a valid token; above MAX_RECORDED they are only no longer recorded in the database.
    """

    def __init__(self) -> None:
        self._failures: deque[tuple[float, str]] = deque(maxlen=MAX_REMEMBERED)

    def blocks(self, address: str) -> bool:
        self._forget()
        source = source_of(address)
        return sum(1 for _, known in self._failures if known == source) >= MAX_FAILURES

    @property
    def is_busy(self) -> bool:
        """True if further failures should not be recorded in the database."""
        self._forget()
        return len(self._failures) >= MAX_RECORDED

    def failed(self, address: str) -> None:
        self._failures.append((time.monotonic(), source_of(address)))

    def _forget(self) -> None:
        while self._failures and self._failures[0][0] < time.monotonic() - WINDOW_SECONDS:
            self._failures.popleft()
