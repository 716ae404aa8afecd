"""Messages: e-mail and SMS, their sends and caps, and the mailbox of development."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from holdfast._engine.statement import (
    Statement,
    call,
    document,
    first,
    integer,
    interval,
    many,
    scalar,
    select,
    sql_function,
    text,
    timestamptz,
)
from holdfast._serialization.text import Json

_PLACEHOLDER = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True)
class Reservation:
    """Whether a message may be sent now; if not, the cap that is reached and when to try again."""

    reserved: bool
    scope: str | None
    period: timedelta | None
    most: int | None
    retry_after: timedelta | None


@dataclass(frozen=True, slots=True)
class MailboxMessage:
    """A message that was kept in the mailbox instead of being sent."""

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
    """The send of one message. The recipient is None if the message was erased."""

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
    """A send in a listing."""

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


class SendPolicy(TypedDict, total=False):
    """When a message is sent, and how often it is tried."""

    scheduled_at: datetime | None
    max_attempts: int | None
    retry_for: timedelta | None
    when_unknown: str | None


@sql_function("comms.reserve_send")
def reserve_send(channel: str, recipient: str, idempotency_key: str) -> Statement[Reservation]:
    """Count a message against its caps, if they allow it."""


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
    """Returns the id of the message in the mailbox."""
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
    """Returns the messages that match every filter, newest first."""
    filters = {
        "answer.channel = ${}::text": channel,
        "answer.recipient = ${}::text": recipient,
        "answer.mailbox_message_id < ${}::bigint": before,
    }
    given = {condition: value for condition, value in filters.items() if value is not None}
    conditions = [condition.format(n) for n, condition in enumerate(given, start=1)]
    rest = f"""where {" and ".join(conditions) or "true"}
      order by answer.mailbox_message_id desc limit ${len(given) + 1}::integer"""
    return select(many(MailboxMessage), "comms.mailbox", rest, (*given.values(), limit))


def mailbox_message(mailbox_message_id: int) -> Statement[MailboxMessage | None]:
    rest = "where answer.mailbox_message_id = $1::bigint"
    return select(first(MailboxMessage), "comms.mailbox", rest, (mailbox_message_id,))


@sql_function("comms.clear_mailbox")
def clear_mailbox() -> Statement[int]:
    """Returns how many messages were removed; call again until there are none."""


@sql_function("comms.erase_messages")
def erase_messages(recipient: str, reason: str, max_messages: int | None = None) -> Statement[int]:
    """Returns how many messages were erased; call again until there are none."""


@sql_function("comms.record_delivery")
def record_delivery(
    provider: str, provider_message_id: str, report: str, reason: str | None = None
) -> Statement[bool]:
    """Returns true if the id of the provider belongs to a send."""


def send_email(
    *,
    recipient: str,
    subject: str,
    text_body: str | None = None,
    html_body: str | None = None,
    sender: str | None = None,
    reply_to: str | None = None,
    headers: Mapping[str, str] | None = None,
    **policy: Unpack[SendPolicy],
) -> Statement[int]:
    """Store an e-mail and start to send it, in one statement. Returns the id of the send."""
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


def send_sms(
    *, recipient: str, text_body: str, sender: str | None = None, **policy: Unpack[SendPolicy]
) -> Statement[int]:
    """Store a text message and start to send it. Returns the id of the send."""
    message = {"recipient": text(recipient), "text_body": text(text_body), "sender": text(sender)}
    return _kickoff(call("comms.create_sms_message", scalar, message), "comms.kickoff_send_sms_task", policy)


def send_status(channel: str, send_id: int) -> Statement[SendStatus | None]:
    rest = "where answer.channel = $1::text and answer.send_id = $2::bigint"
    return select(first(SendStatus), "comms.send_status", rest, (channel, send_id))


def list_sends(send_ids: Sequence[int]) -> Statement[list[SendSummary]]:
    """Returns these sends, newest first. Without ids, the view would be read to its end."""
    rest = "where answer.send_id = any ($1::bigint[]) order by answer.send_id desc"
    return select(many(SendSummary), "comms.send_status", rest, (list(send_ids),))


def _kickoff(message: Statement[int], function: str, policy: SendPolicy) -> Statement[int]:
    """Pass the id of the message that one statement stores to the function that starts its send."""
    started = call(
        function,
        scalar,
        {
            "scheduled_at": timestamptz(policy.get("scheduled_at")),
            "max_attempts": integer(policy.get("max_attempts")),
            "retry_for": interval(policy.get("retry_for")),
            "when_unknown": text(policy.get("when_unknown")),
        },
    )
    before = len(started.params)
    written = _PLACEHOLDER.sub(lambda found: f"${int(found[1]) + before}", message.sql)
    head = started.sql.removesuffix(")") + (", " if before else "")
    return Statement(f"{head}message_id => ({written}))", (*started.params, *message.params), scalar)
