"""comms.keep_message, comms.mailbox and comms.clear_mailbox: messages that are kept instead of sent."""

from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, answer, call, change_setting, rows


def keep(conn: Connection, key: Any = "k", **more: Any) -> int:
    given = {"channel": "email", "recipient": "ada@example.com", "idempotency_key": str(key), **more}
    return int(answer(conn, "comms.keep_message", given))


def test_a_message_is_kept_as_it_was_given(tx: Connection, clock: Clock) -> None:
    kept = keep(
        tx,
        sender="shop@example.com",
        subject="Hello",
        text_body="Hi",
        html_body="<p>Hi</p>",
        reply_to="b@x.example",
    )
    assert rows(tx, "select * from comms.mailbox") == [
        {
            "mailbox_message_id": kept,
            "channel": "email",
            "recipient": "ada@example.com",
            "sender": "shop@example.com",
            "subject": "Hello",
            "text_body": "Hi",
            "html_body": "<p>Hi</p>",
            "reply_to": "b@x.example",
            "headers": {},
            "idempotency_key": "k",
            "kept_at": clock.now,
        }
    ]


def test_the_same_key_is_kept_once(tx: Connection) -> None:
    assert keep(tx, subject="first") == keep(tx, subject="second")
    assert [row["subject"] for row in rows(tx, "select subject from comms.mailbox")] == ["first"]


def test_the_newest_are_kept(tx: Connection) -> None:
    change_setting(tx, "mailbox_messages", 3)
    for n in range(5):
        keep(tx, n)
    found = rows(tx, "select idempotency_key from comms.mailbox order by mailbox_message_id")
    assert [row["idempotency_key"] for row in found] == ["2", "3", "4"]


def test_many_too_many_go_little_by_little(tx: Connection) -> None:
    for n in range(205):
        keep(tx, n)
    change_setting(tx, "mailbox_messages", 1)
    left = []
    for n in range(205, 209):
        keep(tx, n)
        left.append(len(rows(tx, "select from comms.mailbox")))
    assert left == [106, 7, 1, 1]


def test_it_is_cleared(tx: Connection) -> None:
    keep(tx, 1)
    keep(tx, 2, channel="sms", recipient="+4915112345678")
    assert answer(tx, "comms.clear_mailbox", {}) == 2
    assert answer(tx, "comms.clear_mailbox", {}) == 0


@pytest.mark.parametrize(
    "given", [{"channel": "fax"}, {"channel": None}, {"recipient": None}, {"idempotency_key": None}]
)
def test_what_is_missing_is_refused(tx: Connection, given: dict[str, Any]) -> None:
    usual = {"channel": "email", "recipient": "ada@example.com", "idempotency_key": "k"}
    with pytest.raises(psycopg.Error) as caught, tx.transaction():
        call(tx, "comms.keep_message", usual | given)
    assert caught.value.sqlstate == "QF400"


def test_workers_write_readers_read_and_operators_clear(db: Database) -> None:
    worker, reader, operator = (db.connect(f"holdfast_{role}") for role in ("worker", "reader", "operator"))
    keep(worker)
    assert len(rows(reader, "select * from comms.mailbox")) == 1
    for conn in (db.connect("holdfast_client"), reader, operator):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            keep(conn, 2)
    for conn in (worker, reader):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            answer(conn, "comms.clear_mailbox", {})
    assert answer(operator, "comms.clear_mailbox", {}) == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        db.connect("holdfast_client").execute("select from comms.mailbox")
