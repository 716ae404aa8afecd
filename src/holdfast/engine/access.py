"""Statements of the HTTP side: who uses it, what waits there, and how things went."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from holdfast.engine.statement import (
    Bound,
    Statement,
    call,
    columns_of,
    first,
    integer,
    many,
    nothing,
    scalar,
    span,
    text,
    texts,
    uuid,
)
from holdfast.model import Access, AccessEvent, AccessTokenStatus, Activity, TaskStatus, Watched


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


def watch_many(task_ids: Sequence[UUID], ttl: timedelta | None = None) -> Statement[list[Watched]]:
    """Those that may be seen, with their status now."""
    arguments = {"task_ids": Bound("uuid[]", list(task_ids)), "ttl": span(ttl)}
    return call("queues.watch_many", many(Watched), arguments, columns_of(Watched))


def search_tasks(words: str, max_tasks: int | None = None) -> Statement[list[TaskStatus]]:
    arguments = {"words": text(words), "max_tasks": integer(max_tasks)}
    return call("queues.search_tasks", many(TaskStatus), arguments, columns_of(TaskStatus))


def take_sample() -> Statement[bool]:
    return call("queues.take_sample", scalar, {})


def list_activity(since: timedelta, step: timedelta) -> Statement[list[Activity]]:
    arguments = {"since": span(since), "step": span(step)}
    return call("queues.list_activity", many(Activity), arguments, columns_of(Activity))
