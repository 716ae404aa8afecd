"""Access: tokens and sessions of the HTTP API, its audit trail, and namespaces."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args
from uuid import UUID

from holdfast.engine.statement import (
    Bound,
    Statement,
    call,
    columns_of,
    first,
    many,
    nothing,
    scalar,
    span,
    text,
    texts,
    uuid,
)

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


def create_token(
    name: str,
    scopes: Sequence[str],
    token_hash: bytes,
    ttl: timedelta | None = None,
    namespace: str | None = None,
) -> Statement[int]:
    """Without a namespace, it has one of its own, which tokens of the same name share."""
    arguments = {
        "name": text(name),
        "scopes": texts(scopes),
        "token_hash": Bound("bytea", token_hash),
        "ttl": span(ttl),
        "namespace": text(namespace),
    }
    return call("queues.create_token", scalar, arguments)


def renew_token(token_id: int, ttl: timedelta) -> Statement[bool]:
    """Returns whether it is still good."""
    return call("queues.renew_token", scalar, {"token_id": Bound("bigint", token_id), "ttl": span(ttl)})


def revoke_token(token_id: int, reason: str | None = None) -> Statement[bool]:
    """Answers whether it was good until now."""
    return call(
        "queues.revoke_token", scalar, {"token_id": Bound("bigint", token_id), "reason": text(reason)}
    )


def check_token(token_hash: bytes) -> Statement[Access | None]:
    return call(
        "queues.check_token", first(Access), {"token_hash": Bound("bytea", token_hash)}, columns_of(Access)
    )


def open_session(
    token_hash: bytes, session_hash: bytes, ttl: timedelta | None = None, address: str | None = None
) -> Statement[Access | None]:
    arguments = {
        "token_hash": Bound("bytea", token_hash),
        "session_hash": Bound("bytea", session_hash),
        "ttl": span(ttl),
        "address": text(address),
    }
    return call("queues.open_session", first(Access), arguments, columns_of(Access))


def check_session(session_hash: bytes) -> Statement[Access | None]:
    arguments = {"session_hash": Bound("bytea", session_hash)}
    return call("queues.check_session", first(Access), arguments, columns_of(Access))


def close_session(session_hash: bytes) -> Statement[bool]:
    return call("queues.close_session", scalar, {"session_hash": Bound("bytea", session_hash)})


def record_reveal(task_id: UUID, reason: str | None = None, address: str | None = None) -> Statement[None]:
    arguments = {"task_id": uuid(task_id), "reason": text(reason), "address": text(address)}
    return call("queues.record_reveal", nothing, arguments)


def record_message_reveal(
    mailbox_message_id: int, reason: str | None = None, address: str | None = None
) -> Statement[None]:
    """The same for a message of the mailbox."""
    shown = Bound("bigint", mailbox_message_id)
    arguments = {"reason": text(reason), "address": text(address), "mailbox_message_id": shown}
    return call("queues.record_reveal", nothing, arguments)


def access_tokens() -> Statement[list[AccessTokenStatus]]:
    sql = f"select {columns_of(AccessTokenStatus)} from queues.access_token_status answer order by 1 desc"  # noqa: S608 - our names only
    return Statement(sql, (), many(AccessTokenStatus))


def access_events(max_events: int = 100) -> Statement[list[AccessEvent]]:
    """The newest first."""
    sql = (
        f"select {columns_of(AccessEvent)} from queues.access_event answer order by 1 desc limit $1::integer"  # noqa: S608 - our names only
    )
    return Statement(sql, (max_events,), many(AccessEvent))


def reveals_of(task_id: UUID) -> Statement[list[AccessEvent]]:
    """Who was shown the hidden values of a task."""
    shown = "answer.task_id = $1::uuid order by 1"
    sql = f"select {columns_of(AccessEvent)} from queues.access_event answer where {shown}"  # noqa: S608 - our names only
    return Statement(sql, (task_id,), many(AccessEvent))


def namespace() -> Statement[str]:
    """That of the connection's login."""
    return call("queues.namespace", scalar, {})


def add_to_namespace(login: str, namespace: str, reason: str | None = None) -> Statement[bool]:
    """For administrators. Returns false if the login uses that namespace already."""
    arguments = {"login": text(login), "namespace": text(namespace), "reason": text(reason)}
    return call("queues.add_to_namespace", scalar, arguments)


def remove_from_namespace(login: str, reason: str | None = None) -> Statement[bool]:
    """For administrators. Returns false if the login has its own namespace already."""
    return call("queues.remove_from_namespace", scalar, {"login": text(login), "reason": text(reason)})


def namespace_members() -> Statement[list[NamespaceMember]]:
    """Logins that share a namespace, and tokens."""
    sql = f"select {columns_of(NamespaceMember)} from queues.namespace_member answer order by 1, 2, 3"  # noqa: S608 - our names only
    return Statement(sql, (), many(NamespaceMember))
