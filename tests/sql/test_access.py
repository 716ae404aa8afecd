"""Access tokens, sessions, and what is recorded of them."""

import hashlib
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, Row, act, answer, call, enqueue, events, refused, rows, value

HASH = hashlib.sha256(b"secret").digest()
SESSION = hashlib.sha256(b"cookie").digest()


def create(conn: Connection, name: str | None = "shop", scopes: Any = ("read",), **more: Any) -> Any:
    scopes = None if scopes is None else list(scopes)
    arguments = {"name": name, "scopes": scopes, "token_hash": HASH, **more}
    return answer(conn, "queues.create_token", arguments)


def check(conn: Connection, token_hash: bytes = HASH) -> list[Row]:
    return call(conn, "queues.check_token", {"token_hash": token_hash})


def log_in(conn: Connection, token_hash: bytes = HASH, **more: Any) -> list[Row]:
    given = {"token_hash": token_hash, "session_hash": SESSION, **more}
    return call(conn, "queues.open_session", given)


def session(conn: Connection) -> list[Row]:
    return call(conn, "queues.check_session", {"session_hash": SESSION})


def recorded(conn: Connection) -> list[tuple[str, str]]:
    found = rows(conn, "select act, actor from queues.access_event order by access_act_id")
    return [(row["act"], row["actor"]) for row in found]


def test_a_token_is_known_by_its_hash_until_it_expires(tx: Connection, clock: Clock) -> None:
    token_id = create(tx, scopes=["read", "enqueue", "read"], ttl=timedelta(hours=1))
    [found] = check(tx)
    assert (found["token_id"], found["name"], found["scopes"]) == (token_id, "shop", ["enqueue", "read"])
    assert check(tx, hashlib.sha256(b"other").digest()) == []
    clock.advance(3601)
    assert check(tx) == []


def test_a_token_that_was_revoked_is_over_and_its_sessions_too(tx: Connection) -> None:
    token_id = create(tx)
    assert log_in(tx)
    assert answer(tx, "queues.revoke_token", {"token_id": token_id, "reason": "leaked"}) is True
    assert (check(tx), session(tx), log_in(tx)) == ([], [], [])
    assert answer(tx, "queues.revoke_token", {"token_id": token_id}) is False
    assert value(tx, "select count(*) from queues.access_session") == 0


def test_a_token_that_nobody_made_cannot_be_revoked(tx: Connection) -> None:
    with refused(tx, "QF404", "there is no access token 999"):
        answer(tx, "queues.revoke_token", {"token_id": 999})


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"scopes": None}, "scopes"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes"),
        ({"token_hash": b"short"}, "token_hash"),
        ({"token_hash": None}, "token_hash"),
        ({"ttl": timedelta(seconds=1)}, "ttl"),
        ({"ttl": timedelta(days=36500)}, "ttl"),
        ({"ttl": None}, "ttl"),
    ],
)
def test_a_token_that_cannot_be_meant_is_refused(
    tx: Connection, arguments: dict[str, Any], part: str
) -> None:
    with refused(tx, "QF400", part):
        create(tx, **arguments)


def test_a_hash_stands_for_one_token(tx: Connection) -> None:
    create(tx)
    with refused(tx, "QF409", "already exists"):
        create(tx, name="another")


@pytest.mark.parametrize("scope", ["enqueue", "admin"])
def test_nobody_hands_out_more_than_the_login_may_do(db: Database, scope: str) -> None:
    operator = db.connect("holdfast_operator")
    with pytest.raises(psycopg.Error) as caught:
        create(operator, scopes=[scope])
    assert caught.value.sqlstate == "QF403"
    assert create(operator, scopes=["read", "operate"])


def test_a_session_ends_by_itself_and_with_its_token(tx: Connection, clock: Clock) -> None:
    create(tx, ttl=timedelta(hours=10))
    [opened] = log_in(tx, ttl=timedelta(hours=1))
    assert opened["expires_at"] == clock.now + timedelta(hours=1)
    [found] = session(tx)
    assert found["name"] == "shop"
    clock.advance(3601)
    assert session(tx) == []
    assert log_in(tx, ttl=timedelta(days=2))[0]["expires_at"] < clock.now + timedelta(hours=9)


def test_sessions_that_are_over_are_removed_at_the_next_login(tx: Connection, clock: Clock) -> None:
    create(tx)
    log_in(tx, ttl=timedelta(minutes=1))
    clock.advance(61)
    log_in(tx)
    assert value(tx, "select count(*) from queues.access_session") == 1


def test_logging_out_ends_the_session(tx: Connection) -> None:
    create(tx)
    log_in(tx)
    assert answer(tx, "queues.close_session", {"session_hash": SESSION}) is True
    assert session(tx) == []
    assert answer(tx, "queues.close_session", {"session_hash": SESSION}) is False


def test_everything_about_access_is_recorded(tx: Connection) -> None:
    token_id = create(tx)
    log_in(tx, address="192.0.2.1")
    answer(tx, "queues.close_session", {"session_hash": SESSION})
    log_in(tx, hashlib.sha256(b"guess").digest(), address="192.0.2.2")
    answer(tx, "queues.revoke_token", {"token_id": token_id})
    assert recorded(tx) == [
        ("token_created", "postgres"),
        ("logged_in", "postgres for shop"),
        ("logged_out", "postgres for shop"),
        ("login_refused", "postgres"),
        ("token_revoked", "postgres"),
    ]


def test_when_a_token_was_used_is_known_to_a_minute(tx: Connection, clock: Clock) -> None:
    create(tx)
    used = "select last_used_at from queues.access_token_status"
    assert value(tx, used) is None
    check(tx)
    first = value(tx, used)
    clock.advance(59)
    check(tx)
    assert value(tx, used) == first
    clock.advance(2)
    check(tx)
    assert value(tx, used) == clock.now


def test_a_check_does_not_wait_for_another(db: Database) -> None:
    admin, one, other = db.connect(), db.connect(autocommit=False), db.connect(autocommit=False)
    create(admin)
    assert check(one)
    other.execute("set local lock_timeout = '1s'")
    assert check(other)
    one.rollback()
    other.rollback()


def test_an_act_says_for_whom_it_was_done(tx: Connection) -> None:
    task_id = enqueue(tx)
    tx.execute("select set_config('holdfast.acting_for', %s, true)", ["anna" + "x" * 500])
    act(tx, "cancel", task_id, reason="because")
    [cancelled] = [event for event in events(tx, task_id) if event["event_type"] == "cancelled"]
    assert cancelled["actor"].startswith("postgres for anna")
    assert len(cancelled["actor"]) < 250


def test_for_whom_one_acts_opens_nothing(db: Database) -> None:
    task_id = enqueue(db.connect())
    client = db.connect("holdfast_client")
    client.execute("select set_config('holdfast.acting_for', 'postgres', false)")
    with pytest.raises(psycopg.Error) as caught:
        act(client, "cancel", task_id)
    assert caught.value.sqlstate == "QF404"


def test_a_token_is_renewed_while_it_is_good(tx: Connection, clock: Clock) -> None:
    token_id = create(tx, ttl=timedelta(minutes=5))
    [opened] = log_in(tx)
    assert opened["expires_at"] == clock.now + timedelta(minutes=5)
    clock.advance(299)
    assert answer(tx, "queues.renew_token", {"token_id": token_id, "ttl": timedelta(minutes=5)}) is True
    clock.advance(299)
    assert (len(check(tx)), len(session(tx))) == (1, 1)
    clock.advance(2)
    assert (check(tx), session(tx)) == ([], [])
    assert answer(tx, "queues.renew_token", {"token_id": token_id, "ttl": timedelta(minutes=5)}) is False


def test_renewing_never_shortens_nor_brings_a_revoked_token_back(tx: Connection, clock: Clock) -> None:
    token_id = create(tx, ttl=timedelta(hours=1))
    assert answer(tx, "queues.renew_token", {"token_id": token_id, "ttl": timedelta(minutes=5)}) is True
    clock.advance(3599)
    assert check(tx)
    answer(tx, "queues.revoke_token", {"token_id": token_id})
    assert answer(tx, "queues.renew_token", {"token_id": token_id, "ttl": timedelta(hours=1)}) is False
    with refused(tx, "QF400", "ttl must be between"):
        answer(tx, "queues.renew_token", {"token_id": token_id, "ttl": timedelta(seconds=1)})


def test_an_operator_cannot_renew_what_it_could_not_create(db: Database) -> None:
    token_id = create(db.connect(), scopes=["admin"])
    renew = {"token_id": token_id, "ttl": timedelta(days=900)}
    assert answer(db.connect("holdfast_operator"), "queues.renew_token", renew) is False


def test_a_message_that_was_shown_is_recorded(tx: Connection) -> None:
    kept = {
        "channel": "email",
        "idempotency_key": "k1",
        "kept_at": "2030-01-01",
        "recipient": "a@example.com",
    }
    columns, values = ", ".join(kept), ", ".join(f"%({name})s" for name in kept)
    tx.execute(f"insert into comms.mailbox_message ({columns}) values ({values})", kept)
    shown = value(tx, "select mailbox_message_id from comms.mailbox_message")
    call(tx, "queues.record_reveal", {"mailbox_message_id": shown, "reason": "support"})
    [row] = rows(tx, "select act, task_id, mailbox_message_id, reason from queues.access_event")
    assert row == {"act": "revealed", "task_id": None, "mailbox_message_id": shown, "reason": "support"}
    with refused(tx, "QF404", "there is no message"):
        call(tx, "queues.record_reveal", {"mailbox_message_id": shown + 1, "reason": "support"})
    with refused(tx, "QF400", "give either"):
        call(tx, "queues.record_reveal", {"mailbox_message_id": shown, "task_id": uuid4(), "reason": "x"})
    for nothing in (None, "  "):
        with refused(tx, "QF400", "a reason is required"):
            call(tx, "queues.record_reveal", {"mailbox_message_id": shown, "reason": nothing})


def test_a_reveal_is_recorded_with_its_task(tx: Connection) -> None:
    task_id = enqueue(tx)
    call(tx, "queues.record_reveal", {"task_id": task_id, "reason": "support", "address": "192.0.2.1"})
    [row] = rows(tx, "select act, task_id, reason, address from queues.access_event")
    assert row == {"act": "revealed", "task_id": task_id, "reason": "support", "address": "192.0.2.1"}
