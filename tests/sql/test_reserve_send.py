"""comms.reserve_send: how much may be sent, to whom, and that a retry counts once."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, Row, answer, call, rows, value
from support.sessions import at_once, in_background, wait_until_blocked


def reserve(conn: Connection, key: Any, to: Any = "ada@example.com", channel: Any = "email") -> Row:
    (row,) = call(
        conn, "comms.reserve_send", {"channel": channel, "recipient": to, "idempotency_key": str(key)}
    )
    return row


def cap(conn: Connection, channel: str, scope: str, most: int, period: str = "1 day") -> None:
    """The only cap of its channel."""
    conn.execute("delete from comms.send_cap where channel = %s", [channel])
    conn.execute("insert into comms.send_cap values (%s, %s, %s, %s)", [channel, scope, period, most])


def reserved(conn: Connection, keys: Any, **arguments: Any) -> list[bool]:
    return [reserve(conn, key, **arguments)["reserved"] for key in keys]


def test_a_recipient_gets_no_more_than_the_cap(tx: Connection, clock: Clock) -> None:
    cap(tx, "email", "recipient", 2)
    assert reserved(tx, [1, 2, 3]) == [True, True, False]
    assert reserved(tx, [4], to="bob@example.com") == [True]


def test_the_refusal_says_which_cap_and_for_how_long(tx: Connection, clock: Clock) -> None:
    cap(tx, "email", "recipient", 1, "1 hour")
    reserve(tx, 1)
    clock.advance(600)
    assert reserve(tx, 2) == {
        "reserved": False,
        "scope": "recipient",
        "period": timedelta(hours=1),
        "most": 1,
        "retry_after": timedelta(minutes=50),
    }


def test_a_recipient_is_the_same_however_written(tx: Connection, clock: Clock) -> None:
    cap(tx, "email", "recipient", 1)
    reserve(tx, 1, "Ada@Example.com")
    assert not reserve(tx, 2, "ada@example.COM")["reserved"]


def test_the_count_begins_anew_when_its_period_is_over(tx: Connection, clock: Clock) -> None:
    cap(tx, "email", "recipient", 1, "1 hour")
    assert reserved(tx, [1, 2]) == [True, False]
    clock.advance(3599)
    assert reserved(tx, [3]) == [False]
    clock.advance(1)
    assert reserved(tx, [4, 5]) == [True, False]


def test_the_same_key_counts_once(tx: Connection, clock: Clock) -> None:
    cap(tx, "email", "recipient", 2)
    assert reserved(tx, [1, 1, 1, 2, 2, 1, 3]) == [True, True, True, True, True, True, False]


def test_a_key_that_was_refused_is_asked_again_later(tx: Connection, clock: Clock) -> None:
    cap(tx, "email", "recipient", 1)
    assert reserved(tx, [1, 2]) == [True, False]
    clock.advance(86400)
    assert reserved(tx, [2]) == [True]


def test_a_refusal_counts_nowhere(tx: Connection, clock: Clock) -> None:
    cap(tx, "email", "all", 2)
    tx.execute("insert into comms.send_cap values ('email', 'recipient', '1 day', 1)")
    assert reserved(tx, [1, 2, 3, 4]) == [True, False, False, False]
    assert reserved(tx, [5], to="bob@example.com") == [True]
    assert reserved(tx, [6], to="eve@example.com") == [False]


def test_a_country_gets_no_more_than_the_cap(tx: Connection, clock: Clock) -> None:
    cap(tx, "sms", "country", 2)
    numbers = ["+4915112345671", "+4915112345672", "+4915112345673", "+436601234567"]
    answers = [reserve(tx, n, number, "sms") for n, number in enumerate(numbers)]
    assert [one["reserved"] for one in answers] == [True, True, False, True]
    assert answers[2]["scope"] == "country"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        ("+12125550100", "+1"),
        ("+79161234567", "+7"),
        ("+201001234567", "+20"),
        ("+2125551234", "+212"),
        ("+27821234567", "+27"),
        ("+306912345678", "+30"),
        ("+351912345678", "+351"),
        ("+380501234567", "+380"),
        ("+393331234567", "+39"),
        ("+41791234567", "+41"),
        ("+420601123456", "+420"),
        ("+436601234567", "+43"),
        ("+4915112345678", "+49"),
        ("+5215512345678", "+52"),
        ("+593991234567", "+593"),
        ("+6591234567", "+65"),
        ("+670771234567", "+670"),
        ("+819012345678", "+81"),
        ("+85291234567", "+852"),
        ("+8613812345678", "+86"),
        ("+905321234567", "+90"),
        ("+966501234567", "+966"),
        ("+989121234567", "+98"),
        ("+998901234567", "+998"),
    ],
)
def test_the_country_of_a_number_is_its_calling_code(tx: Connection, number: str, code: str) -> None:
    assert value(tx, "select comms.cap_subject('country', %s)", [number]) == code


def test_all_messages_together_have_a_cap(tx: Connection, clock: Clock) -> None:
    cap(tx, "sms", "all", 2)
    assert [reserve(tx, n, f"+{n}151123456789"[:14], "sms")["reserved"] for n in (1, 44, 49)] == [
        True,
        True,
        False,
    ]
    assert reserve(tx, "e")["reserved"]


def test_a_cap_of_none_stops_a_channel(tx: Connection, clock: Clock) -> None:
    cap(tx, "sms", "all", 0)
    assert not reserve(tx, 1, "+4915112345678", "sms")["reserved"]


def test_without_caps_everything_may_be_sent(tx: Connection, clock: Clock) -> None:
    tx.execute("delete from comms.send_cap")
    assert reserved(tx, range(50)) == [True] * 50
    assert value(tx, "select count(*) from comms.send_count") == 0


def test_every_installation_has_caps(tx: Connection) -> None:
    found = {(row["channel"], row["scope"]) for row in rows(tx, "select * from comms.send_cap")}
    assert found == {
        ("email", "recipient"),
        ("email", "all"),
        ("sms", "recipient"),
        ("sms", "country"),
        ("sms", "all"),
    }


def test_what_counts_no_more_is_removed_a_little_at_a_time(tx: Connection, clock: Clock) -> None:
    for n in range(30):
        reserve(tx, n, f"{n}@example.com")
    clock.advance(3 * 86400)
    left = []
    for n in range(30, 36):
        reserve(tx, n, "ada@example.com")
        left.append(value(tx, "select count(*) from comms.send_reservation"))
    assert left == [21, 12, 3, 4, 5, 6]
    assert value(tx, "select count(*) from comms.send_count where ends_at < queues.clock()") <= 3


def test_people_see_how_much_of_a_cap_is_used(tx: Connection, clock: Clock) -> None:
    cap(tx, "email", "recipient", 5)
    reserved(tx, [1, 2])
    assert rows(tx, "select * from comms.send_cap_status") == [
        {
            "channel": "email",
            "scope": "recipient",
            "period": timedelta(days=1),
            "subject": "ada@example.com",
            "sent": 2,
            "most": 5,
            "ends_at": clock.after(86400),
        }
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"channel": "fax"},
        {"channel": None},
        {"recipient": ""},
        {"recipient": None},
        {"idempotency_key": ""},
        {"idempotency_key": None},
    ],
)
def test_what_is_missing_is_refused(tx: Connection, given: dict[str, Any]) -> None:
    usual = {"channel": "email", "recipient": "ada@example.com", "idempotency_key": "k"}
    with pytest.raises(psycopg.Error) as caught, tx.transaction():
        call(tx, "comms.reserve_send", usual | given)
    assert caught.value.sqlstate == "QF400"


def test_many_at_once_never_pass_the_cap(db: Database) -> None:
    admin = db.connect()
    cap(admin, "email", "all", 25)
    admin.execute("insert into comms.send_cap values ('email', 'recipient', '1 day', 10)")
    sessions = [db.connect("holdfast_worker") for _ in range(4)]

    def send(number: int) -> int:
        return sum(
            reserved(sessions[number], [f"{number}-{n}" for n in range(20)], to=f"{number % 3}@x.example")
        )

    assert sum(at_once(send, range(4))) == 25
    used = rows(admin, "select scope, sent from comms.send_cap_status where scope = 'all'")
    assert used == [{"scope": "all", "sent": 25}]


def test_the_same_key_at_the_same_time_counts_once(db: Database) -> None:
    admin, first, second = db.connect(), db.connect(autocommit=False), db.connect()
    cap(admin, "email", "all", 10)
    reserve(first, "k")
    with in_background(lambda: reserve(second, "k")) as waiting:
        wait_until_blocked(admin, second)
        first.commit()
        assert waiting.result(30)["reserved"]
    assert value(admin, "select sent from comms.send_count") == 1


def test_a_key_whose_transaction_failed_is_counted_by_the_next(db: Database) -> None:
    admin, first, second = db.connect(), db.connect(autocommit=False), db.connect()
    cap(admin, "email", "all", 10)
    reserve(first, "k")
    with in_background(lambda: reserve(second, "k")) as waiting:
        wait_until_blocked(admin, second)
        first.rollback()
        assert waiting.result(30)["reserved"]
    assert value(admin, "select sent from comms.send_count") == 1


def test_only_workers_reserve(db: Database) -> None:
    for role in ("holdfast_client", "holdfast_process", "holdfast_operator", "holdfast_reader"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reserve(db.connect(role), "k")
    for table in ("send_cap", "send_count", "send_reservation"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.connect("holdfast_worker").execute(f"select from comms.{table}".encode())
    assert answer(db.connect("holdfast_worker"), "queues.clock", {})
    assert reserve(db.connect("holdfast_worker"), "k")["reserved"]
