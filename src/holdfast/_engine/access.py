"""Access: tokens and sessions of the HTTP API, its audit trail, and namespaces."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args
from uuid import UUID

from holdfast._engine.statement import (
    BigInt,
    Statement,
    bigint,
    call,
    many,
    nothing,
    scalar,
    select,
    sql_function,
    text,
)
from holdfast._serialization.text import require_storable

Scope = Literal["enqueue", "read", "operate", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True, slots=True)
class Access:
    """The caller of the HTTP API, identified by an access token or a session, and its scopes."""

    token_id: int
    name: str
    scopes: list[str]
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class AccessTokenStatus:
    """An access token, without its secret."""

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
    """An entry of the audit trail about a token, a login or hidden values."""

    access_act_id: int
    act: str
    occurred_at: datetime
    actor: str
    token_id: int | None
    task_id: UUID | None
    mailbox_message_id: int | None
    address: str | None
    reason: str | None


@sql_function("queues.create_token")
def create_token(
    name: str,
    scopes: Sequence[str],
    token_hash: bytes,
    ttl: timedelta | None = None,
    namespace: str | None = None,
) -> Statement[int]:
    """Returns the id of the token. Tokens of the same name share a namespace unless one is given."""


@sql_function("queues.renew_token")
def renew_token(token_id: BigInt, ttl: timedelta) -> Statement[bool]:
    """Returns true if the token is still valid."""


@sql_function("queues.revoke_token")
def revoke_token(token_id: BigInt, reason: str | None = None) -> Statement[bool]:
    """Returns true if the token was valid until now."""


@sql_function("queues.check_token")
def check_token(token_hash: bytes) -> Statement[Access | None]:
    """The token with this hash, if it is valid."""


@sql_function("queues.open_session")
def open_session(
    token_hash: bytes, session_hash: bytes, ttl: timedelta | None = None, address: str | None = None
) -> Statement[Access | None]:
    """A session of this token, if the token is valid."""


@sql_function("queues.check_session")
def check_session(session_hash: bytes) -> Statement[Access | None]:
    """The session with this hash, if it is valid."""


@sql_function("queues.close_session")
def close_session(session_hash: bytes) -> Statement[bool]:
    """Returns true if the session was open."""


@sql_function("queues.record_reveal")
def record_reveal(task_id: UUID | None, reason: str | None, address: str | None = None) -> Statement[None]:
    """Record that the hidden values of a task were shown, or, without one, those of all tasks."""


def record_message_reveal(
    mailbox_message_id: int, reason: str, address: str | None = None
) -> Statement[None]:
    """Record that the hidden values of a mailbox message were shown."""
    shown = bigint(mailbox_message_id)
    arguments = {"reason": text(reason), "address": text(address), "mailbox_message_id": shown}
    return call("queues.record_reveal", nothing, arguments)


def access_tokens() -> Statement[list[AccessTokenStatus]]:
    return select(many(AccessTokenStatus), "queues.access_token_status", "order by 1 desc")


def access_events(max_events: int = 100) -> Statement[list[AccessEvent]]:
    """Returns the newest first."""
    rest = "order by answer.occurred_at desc, 1 desc limit $1::integer"
    return select(many(AccessEvent), "queues.access_event", rest, (max_events,))


def reveals_of(task_id: UUID) -> Statement[list[AccessEvent]]:
    """Returns the occasions on which the hidden values of a task were shown."""
    rest = "where answer.task_id = $1::uuid order by answer.occurred_at, 1"
    return select(many(AccessEvent), "queues.access_event", rest, (task_id,))


@sql_function("queues.namespace")
def namespace() -> Statement[str]:
    """Returns the namespace of the login that is connected."""


@sql_function("queues.add_to_namespace")
def add_to_namespace(login: str, namespace: str, reason: str | None = None) -> Statement[bool]:
    """For administrators. Returns false if the login uses that namespace already."""


@sql_function("queues.remove_from_namespace")
def remove_from_namespace(login: str, reason: str | None = None) -> Statement[bool]:
    """For administrators. Returns false if the login has its own namespace already."""


def namespace_members() -> Statement[list[NamespaceMember]]:
    """Returns tokens, and logins that share a namespace."""
    return select(many(NamespaceMember), "queues.namespace_member", "order by 1, 2, 3")


def act_for(actor: str) -> Statement[str]:
    """Say for whom the login acts, until the transaction ends."""
    sql = "select set_config('holdfast.acting_for', $1::text, true)"
    return Statement(sql, (require_storable("actor", actor),), scalar)
