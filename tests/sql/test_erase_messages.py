"""comms.erase_messages and the policy for messages: addresses and texts go, facts stay."""

from datetime import timedelta
from typing import Any

import pytest

from support.clock import Clock
from support.comms import Channel, run
from support.database import Database
from support.engine import Connection, call, refused, rows, value
from support.sessions import in_background, wait_until_blocked

DAY = 86400


def _erase(conn: Connection, recipient: str | None, reason: str | None = "asked for", **more: Any) -> int:
    (row,) = call(conn, "comms.erase_messages", {"recipient": recipient, "reason": reason, **more})
    return int(next(iter(row.values())))


def _prune(conn: Connection, **more: Any) -> Any:
    (row,) = call(conn, "queues.prune", {"status": "messages", **more})
    return row


def _sent(conn: Connection, channel: Channel, **message: Any) -> int:
    send = channel.kick_off(conn, message_id=channel.create(conn, **message))
    channel.supervise(conn, send)
    channel.succeed(conn, send)
    channel.supervise(conn, send)
    return send


def _places_of(conn: Connection, word: str) -> list[str]:
    """The tables of comms in which this occurs anywhere."""
    tables = rows(
        conn,
        """select c.relname::text as name from pg_class c
           where c.relnamespace = 'comms'::regnamespace and c.relkind = 'r' order by 1""",
    )
    return [
        table["name"]
        for table in tables
        if value(
            conn,
            f"select exists (select from comms.{table['name']} t where t::text ilike '%%' || %s || '%%')",
            [word],
        )
    ]


@pytest.fixture
def recipient(channel: Channel) -> str:
    return str(channel.message()["recipient"])


def test_the_address_and_the_text_are_kept_in_one_table(
    tx: Connection, channel: Channel, recipient: str
) -> None:
    _sent(tx, channel)

    assert _places_of(tx, recipient) == ["message_content"]
    assert _places_of(tx, "123456") == ["message_content"]


def test_what_was_written_to_a_recipient_goes_and_the_facts_stay(
    tx: Connection, channel: Channel, clock: Clock, recipient: str
) -> None:
    send = _sent(tx, channel)
    before = channel.counts(tx, send)
    tx.execute(
        "select comms.keep_message(%s, %s, 'k', text_body => '123456')", [channel.name, recipient.upper()]
    )
    tx.execute("select comms.reserve_send(%s, %s, 'k')", [channel.name, recipient])

    assert _erase(tx, recipient.upper(), "asked for by mail 7") == 2

    assert _places_of(tx, recipient) == _places_of(tx, "123456") == []
    assert channel.counts(tx, send) == before
    status = channel.status(tx, send)
    assert (status["status"], status["recipient"]) == ("succeeded", None)
    (fact,) = rows(tx, "select * from comms.message_erased")
    assert (fact["erased_by"], fact["erased_at"], fact["reason"]) == (
        "postgres",
        clock.now,
        "asked for by mail 7",
    )
    assert _erase(tx, recipient) == 0


def test_a_send_that_has_not_ended_fails(tx: Connection, channel: Channel, recipient: str) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    _erase(tx, recipient)

    told = run(tx, channel.handler("before"), {f"{channel.root}_id": send, "attempt": 1})

    assert "was erased" in told["validation_failure_message"]


def test_an_erased_message_cannot_be_sent(tx: Connection, channel: Channel, recipient: str) -> None:
    message_id = channel.create(tx)
    _erase(tx, recipient)

    with refused(tx, "QF404", f"there is no {channel.name} message {message_id}"):
        channel.kick_off(tx, message_id=message_id)


def test_others_keep_theirs(tx: Connection, channel: Channel) -> None:
    other = {"email": "bob@example.org", "sms": "+4915100000000"}[channel.name]
    channel.create(tx)
    channel.create(tx, recipient=other)

    assert _erase(tx, other) == 1
    assert value(tx, f"select count(*) from comms.{channel.name}_message") == 1


def test_it_takes_a_bounded_number_at_a_time(tx: Connection, channel: Channel, recipient: str) -> None:
    for _ in range(5):
        channel.create(tx)

    assert [_erase(tx, recipient, max_messages=2) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize(
    ("recipient", "reason", "part"),
    [
        ("", "x", "recipient"),
        (None, "x", "recipient"),
        ("a@b.org", " ", "reason"),
        ("a@b.org", None, "reason"),
    ],
)
def test_it_needs_a_recipient_and_a_reason(
    tx: Connection, recipient: str | None, reason: str | None, part: str
) -> None:
    with refused(tx, "QF400", part):
        value(tx, "select comms.erase_messages(%s, %s)", [recipient, reason])


def test_only_operators_may_erase(db: Database, channel: Channel) -> None:
    for role in ("holdfast_client", "holdfast_worker", "holdfast_reader"):
        with pytest.raises(Exception, match="permission denied"):
            _erase(db.connect(role), "ada@example.org")
    assert _erase(db.connect("holdfast_operator"), "ada@example.org") == 0


class TestRetention:
    """The policy for messages: 90 days after the last send has ended."""

    def test_a_message_is_kept_until_its_sends_have_ended_long_enough_ago(
        self, tx: Connection, channel: Channel, clock: Clock, recipient: str
    ) -> None:
        send = _sent(tx, channel)
        clock.advance(89 * DAY)
        assert _prune(tx)["pruned"] == 0
        clock.advance(2 * DAY)

        assert _prune(tx, dry_run=True)["pruned"] == 1
        assert _places_of(tx, recipient) == ["message_content"]
        assert _prune(tx)["pruned"] == 1
        assert _places_of(tx, recipient) == []
        assert channel.status(tx, send)["status"] == "succeeded"
        (fact,) = rows(tx, "select * from comms.message_erased")
        assert fact["erased_by"] == "retention"

    def test_a_message_that_is_still_to_be_sent_is_kept(
        self, tx: Connection, channel: Channel, clock: Clock
    ) -> None:
        message_id = channel.create(tx)
        send = channel.kick_off(tx, message_id=message_id)
        channel.supervise(tx, send)
        channel.succeed(tx, send)
        channel.supervise(tx, send)
        channel.kick_off(tx, message_id=message_id, scheduled_at=clock.after(200 * DAY))
        clock.advance(100 * DAY)

        assert _prune(tx)["pruned"] == 0

    def test_a_message_that_was_never_sent_goes_too(
        self, tx: Connection, channel: Channel, clock: Clock
    ) -> None:
        channel.create(tx)
        clock.advance(91 * DAY)

        assert _prune(tx)["pruned"] == 1

    def test_copies_in_the_mailbox_go_too(self, tx: Connection, channel: Channel, clock: Clock) -> None:
        tx.execute("select comms.keep_message(%s, 'x', 'k', text_body => 't')", [channel.name])
        clock.advance(91 * DAY)

        assert _prune(tx)["pruned"] == 1
        assert rows(tx, "select from comms.mailbox_message") == []

    def test_messages_that_have_to_stay_do_not_hide_those_behind_them(
        self, tx: Connection, channel: Channel, clock: Clock
    ) -> None:
        for _ in range(3):
            channel.kick_off(tx, scheduled_at=clock.after(200 * DAY))
        _sent(tx, channel)
        clock.advance(91 * DAY)

        first = _prune(tx, max_tasks=2)
        second = _prune(tx, max_tasks=2, past=first["next"])

        assert (first["pruned"], second["pruned"]) == (0, 1)
        assert _prune(tx, max_tasks=3, past=second["next"])["next"] is None

    def test_a_policy_of_for_ever_keeps_all(self, tx: Connection, channel: Channel, clock: Clock) -> None:
        channel.create(tx)
        call(tx, "queues.set_retention", {"status": "messages", "keep": None})
        clock.advance(10000 * DAY)

        assert _prune(tx)["pruned"] == 0

    def test_messages_have_no_types(self, tx: Connection) -> None:
        with refused(tx, "QF400", "messages has no types"):
            call(
                tx,
                "queues.set_retention",
                {"status": "messages", "keep": timedelta(days=1), "type_prefix": "comms."},
            )

    def test_a_send_that_starts_meanwhile_keeps_its_message(self, db: Database, channel: Channel) -> None:
        conn, starting = db.connect(), db.connect(autocommit=False)
        clock = Clock(conn)
        message_id = channel.create(conn)
        clock.advance(91 * DAY)
        channel.kick_off(starting, message_id=message_id)

        assert _prune(conn)["pruned"] == 0
        starting.commit()
        assert _prune(conn)["pruned"] == 0

    def test_an_erasure_waits_for_a_send_that_starts(self, db: Database, channel: Channel) -> None:
        conn, starting, erasing = db.connect(), db.connect(autocommit=False), db.connect()
        message_id = channel.create(conn)
        channel.kick_off(starting, message_id=message_id)
        with in_background(lambda: _erase(erasing, str(channel.message()["recipient"]))) as erasure:
            wait_until_blocked(conn, erasing)
            starting.commit()
            assert erasure.result() == 1
