"""Statements about sends, for pages that show many of them."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from holdfast.engine.statement import Statement, columns_of, many


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
