"""Messages: sends, their status, caps, and the mailbox."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from holdfast.engine.documents import Json
from holdfast.engine.statement import (
    Statement,
    call,
    columns_of,
    document,
    first,
    instant,
    integer,
    many,
    only,
    scalar,
    span,
    text,
)

T = TypeVar("T")
_PLACEHOLDER = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True)
class Reservation:
    """Whether a message may be sent now; if not, which cap is reached and for how long."""

    reserved: bool
    scope: str | None
    period: timedelta | None
    most: int | None
    retry_after: timedelta | None


@dataclass(frozen=True, slots=True)
class MailboxMessage:
    """A message that the mailbox kept instead of sending it."""

    mailbox_message_id: int
    channel: str
    recipient: str
    sender: str | None
    subject: str | None
    text_body: str | None
    html_body: str | None
    reply_to: str | None
    headers: Json
    idempotency_key: str
    kept_at: datetime


@dataclass(frozen=True, slots=True)
class SendStatus:
    """Where the send of one message stands. Without a recipient, the message was erased."""

    send_id: int
    recipient: str | None
    status: str
    reason: str | None
    attempts: int
    failures: int
    max_attempts: int
    provider: str | None
    provider_message_id: str | None
    scheduled_at: datetime
    created_at: datetime
    next_run_at: datetime | None
    succeeded_at: datetime | None
    outcome_unknown: bool
    delivery: str | None
    delivery_reported_at: datetime | None


@dataclass(frozen=True, slots=True)
class SendSummary:
    """A send of a listing."""

    channel: str
    send_id: int
    recipient: str | None
    subject: str | None
    status: str
    reason: str | None
    attempts: int
    max_attempts: int
    delivery: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SendEvent:
    """One fact about a send."""

    fact: str
    occurred_at: datetime
    attempt: int | None
    reason: str | None
    task_id: UUID | None


def reserve_send(channel: str, recipient: str, idempotency_key: str) -> Statement[Reservation]:
    arguments = {
        "channel": text(channel),
        "recipient": text(recipient),
        "idempotency_key": text(idempotency_key),
    }
    return call("comms.reserve_send", only(Reservation), arguments, columns_of(Reservation))


def keep_message(
    channel: str,
    recipient: str,
    idempotency_key: str,
    *,
    sender: str | None = None,
    subject: str | None = None,
    text_body: str | None = None,
    html_body: str | None = None,
    reply_to: str | None = None,
    headers: Mapping[str, Any] | None = None,
) -> Statement[int]:
    """Answers the number of the message in the mailbox."""
    arguments = {
        "channel": text(channel),
        "recipient": text(recipient),
        "idempotency_key": text(idempotency_key),
        "sender": text(sender),
        "subject": text(subject),
        "text_body": text(text_body),
        "html_body": text(html_body),
        "reply_to": text(reply_to),
        "headers": document(dict(headers or {})),
    }
    return call("comms.keep_message", scalar, arguments)


def list_mailbox(
    *, channel: str | None = None, recipient: str | None = None, before: int | None = None, limit: int = 50
) -> Statement[list[MailboxMessage]]:
    """Newest first: those that match every filter given."""
    filters = {
        "answer.channel = ${}::text": channel,
        "answer.recipient = ${}::text": recipient,
        "answer.mailbox_message_id < ${}::bigint": before,
    }
    given = {condition: value for condition, value in filters.items() if value is not None}
    conditions = [condition.format(n) for n, condition in enumerate(given, start=1)]
    sql = (
        f"select {columns_of(MailboxMessage)} from comms.mailbox answer"  # noqa: S608 - our names only
        f" where {' and '.join(conditions) or 'true'}"
        f" order by answer.mailbox_message_id desc limit ${len(given) + 1}::integer"
    )
    return Statement(sql, (*given.values(), limit), many(MailboxMessage))


def mailbox_message(mailbox_message_id: int) -> Statement[MailboxMessage | None]:
    return _by_id("comms.mailbox", "mailbox_message_id", mailbox_message_id, MailboxMessage)


def clear_mailbox() -> Statement[int]:
    """Answers how many messages were removed."""
    return call("comms.clear_mailbox", scalar, {})


def erase_messages(recipient: str, reason: str, max_messages: int | None = None) -> Statement[int]:
    """Returns how many messages were erased. Call it again until there are none."""
    arguments = {
        "recipient": text(recipient),
        "reason": text(reason),
        "max_messages": integer(max_messages),
    }
    return call("comms.erase_messages", scalar, arguments)


def record_delivery(
    provider: str, provider_message_id: str, report: str, reason: str | None = None
) -> Statement[bool]:
    """Returns whether the provider's id belongs to a send."""
    arguments = {
        "provider": text(provider),
        "provider_message_id": text(provider_message_id),
        "report": text(report),
        "reason": text(reason),
    }
    return call("comms.record_delivery", scalar, arguments)


def send_email(
    *,
    recipient: str,
    subject: str,
    text_body: str | None = None,
    html_body: str | None = None,
    sender: str | None = None,
    reply_to: str | None = None,
    headers: Mapping[str, str] | None = None,
    **policy: Any,
) -> Statement[int]:
    """Write an e-mail down and start to send it, in one statement. Answers the id of the send."""
    message = {
        "recipient": text(recipient),
        "subject": text(subject),
        "text_body": text(text_body),
        "html_body": text(html_body),
        "sender": text(sender),
        "reply_to": text(reply_to),
        "headers": document(dict(headers or {})),
    }
    return _kickoff(
        call("comms.create_email_message", scalar, message), "comms.kickoff_send_email_task", policy
    )


def send_sms(*, recipient: str, text_body: str, sender: str | None = None, **policy: Any) -> Statement[int]:
    """The same for a text message."""
    message = {"recipient": text(recipient), "text_body": text(text_body), "sender": text(sender)}
    return _kickoff(call("comms.create_sms_message", scalar, message), "comms.kickoff_send_sms_task", policy)


def send_status(channel: str, send_id: int) -> Statement[SendStatus | None]:
    view, key = f"comms.send_{channel}_status", f"send_{channel}_task_id"
    return _by_id(
        view, key, send_id, SendStatus, columns_of(SendStatus).replace("answer.send_id", f"answer.{key}")
    )


def _kickoff(message: Statement[int], function: str, policy: Mapping[str, Any]) -> Statement[int]:
    """How often and when: scheduled_at, max_attempts, retry_for, when_unknown."""
    started = call(
        function,
        scalar,
        {
            "scheduled_at": instant(policy.get("scheduled_at")),
            "max_attempts": integer(policy.get("max_attempts")),
            "retry_for": span(policy.get("retry_for")),
            "when_unknown": text(policy.get("when_unknown")),
        },
    )
    before = len(started.params)
    written = _PLACEHOLDER.sub(lambda found: f"${int(found[1]) + before}", message.sql)
    head = started.sql.removesuffix(")") + (", " if before else "")
    return Statement(f"{head}message_id => ({written}))", (*started.params, *message.params), scalar)


def _by_id(view: str, key: str, number: int, row: type[T], columns: str = "") -> Statement[T | None]:
    sql = f"select {columns or columns_of(row)} from {view} answer where answer.{key} = $1::bigint"  # noqa: S608 - our names only
    return Statement(sql, (number,), first(row))


def list_sends(limit: int = 100) -> Statement[list[SendSummary]]:
    """The newest first."""
    sql = f"""select {columns_of(SendSummary)} from (
      (select 'email' as channel, e.send_email_task_id as send_id, e.recipient, e.subject, e.status, e.reason,
         e.attempts, e.max_attempts, e.delivery, e.created_at
       from comms.send_email_status e order by e.send_email_task_id desc limit $1::integer)
      union all
      (select 'sms', s.send_sms_task_id, s.recipient, null, s.status, s.reason, s.attempts, s.max_attempts,
         s.delivery, s.created_at
       from comms.send_sms_status s order by s.send_sms_task_id desc limit $2::integer)) answer
      order by answer.created_at desc limit $3::integer"""  # noqa: S608 - our names only
    return Statement(sql, (limit, limit, limit), many(SendSummary))


def send_events(channel: str, send_id: int) -> Statement[list[SendEvent]]:
    """In the order in which they happened."""
    sql = f"""select {columns_of(SendEvent)} from comms.send_event answer
      where answer.channel = $1::text and answer.send_id = $2::bigint order by answer.occurred_at"""  # noqa: S608 - our names only
    return Statement(sql, (channel, send_id), many(SendEvent))
