"""Tasks that send a message, and the functions in the database that prepare it and record its outcome."""

from typing import Any

import pytest

from holdfast.messages import message_executor
from support.business import ask, make_application, make_function
from support.scripted_provider import PostOffice
from support.workshop import Workshop

MESSAGE = {"to": "ada@example.com", "subject": "Hello", "text": "Hello, Ada", "idempotency_key": "send-1"}
PREPARES = """return jsonb_build_object('success', true, 'payload', payload -> 'message');"""
RECORDS = """insert into app.ledger values (coalesce(
    'sent ' || (payload #>> '{worker_payload,message_id}'), 'failed ' || (payload #>> '{error,kind}')));
  return '{"success": true}';"""


def install(shop: Workshop, post_office: PostOffice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions, and the post office as the provider of both channels."""
    make_application(shop.conn)
    make_function(shop.conn, "prepare", PREPARES)
    make_function(shop.conn, "sent", RECORDS)
    make_function(shop.conn, "failed", RECORDS)
    monkeypatch.setattr(message_executor, "email_provider", lambda _: post_office)
    monkeypatch.setattr(message_executor, "sms_provider", lambda _: post_office)


def send(shop: Workshop, task_type: str = "email", **more: Any) -> Any:
    options = {name: more.pop(name) for name in ("max_attempts", "timeout", "lease") if name in more}
    payload = {
        "task_type": task_type,
        "message": MESSAGE,
        "before_handler": "app.prepare",
        "success_handler": "app.sent",
        "error_handler": "app.failed",
        **more,
    }
    return ask(shop.conn, {name: value for name, value in payload.items() if value is not None}, **options)


def handled(shop: Workshop, function: str) -> None:
    """Let a handler keep what it is given."""
    make_function(
        shop.conn, function, "insert into app.ledger values (payload::text); return '{\"success\": true}';"
    )
