"""Access over HTTP: tokens and what was done with them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

Scope = Literal["enqueue", "read", "operate", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True, slots=True)
class Access:
    """Who uses the HTTP side by an access token or a session, and what that one may do."""

    token_id: int
    name: str
    scopes: list[str]
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class AccessTokenStatus:
    """An access token, without what would let anybody use it."""

    token_id: int
    name: str
    namespace: str
    scopes: list[str]
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    good: bool
    sessions: int


@dataclass(frozen=True, slots=True)
class NamespaceMember:
    """A login or a token that uses a namespace."""

    namespace: str
    kind: Literal["login", "token"]
    name: str
    added_at: datetime
    added_by: str


@dataclass(frozen=True, slots=True)
class AccessEvent:
    """What was done with a token, a login or hidden values."""

    access_act_id: int
    act: str
    occurred_at: datetime
    actor: str
    token_id: int | None
    task_id: UUID | None
    mailbox_message_id: int | None
    address: str | None
    reason: str | None
