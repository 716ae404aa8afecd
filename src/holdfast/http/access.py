"""Who asks, and what that one may do: by an access token in a header, or by a session's cookie."""

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.engine.access import Access, Scope

PREFIX: Final = "hf_"
_SHAPE = re.compile(r"hf_[A-Za-z0-9_-]{43}", re.ASCII)

# admin may all that the others may, and whoever operates may look.
_IMPLIED: dict[str, frozenset[Scope]] = {
    "enqueue": frozenset(("enqueue",)),
    "read": frozenset(("read",)),
    "operate": frozenset(("operate", "read")),
    "admin": frozenset(("admin", "operate", "read", "enqueue")),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who was let in."""

    name: str
    scopes: frozenset[Scope]
    token_id: int | None = None
    expires_at: datetime | None = None
    token_hash: bytes | None = None
    """Of the token that was presented: what is enqueued with it belongs to its namespace."""

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes


ANONYMOUS = Caller("anybody", _IMPLIED["admin"])
"""Whoever can reach a server that asks for no login, which listens on this machine only."""


def caller_of(access: Access, token_hash: bytes | None = None) -> Caller:
    scopes = frozenset(implied for scope in access.scopes for implied in _IMPLIED[scope])
    return Caller(access.name, scopes, access.token_id, access.expires_at, token_hash)


def new_token() -> str:
    """256 bits of chance; the prefix lets scanners for leaked secrets find it."""
    return PREFIX + secrets.token_urlsafe(32)


def new_session() -> str:
    return secrets.token_urlsafe(32)


def hash_of(secret: str) -> bytes:
    """What the database knows of a token or a session. Chance of 256 bits needs no salt and no slowness."""
    return hashlib.sha256(secret.encode()).digest()


def looks_like_token(given: str) -> bool:
    return _SHAPE.fullmatch(given) is not None


def csrf_of(session: str) -> str:
    """What a form of this session carries. Who does not know the cookie cannot know it."""
    digest = hashlib.sha256(f"holdfast form\n{session}".encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def same_secret(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(), other.encode())
