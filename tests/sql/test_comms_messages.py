"""Messages and kickoffs: what is taken down, and what is refused before anybody tries to send it."""

import json
from typing import Any

import pytest

from support.clock import Clock
from support.comms import Channel
from support.database import Database
from support.engine import Connection, refused, rows, value

EMAIL, SMS = Channel("email"), Channel("sms")


def test_a_message_is_kept_as_it_was_given(tx: Connection) -> None:
    given = {
        "recipient": "Ada+login@mail.example.org",
        "subject": "Grüße, Ada: 50 % off",
        "text_body": "Line one\nLine two\n",
        "html_body": "<p>Line one</p>",
        "sender": "Shop <shop@example.org>",
        "reply_to": "help@example.org",
    }
    message_id = EMAIL.create(tx, **given)

    (kept,) = rows(tx, "select * from comms.email_message where message_id = %s", [message_id])
    assert {name: kept[name] for name in given} == given
    (root,) = rows(tx, "select * from comms.message where message_id = %s", [message_id])
    assert (root["channel"], root["created_by"]) == ("email", "postgres")


def test_headers_are_kept(tx: Connection) -> None:
    message_id = value(
        tx,
        """select comms.create_email_message('ada@example.org', 'Hello', 'text',
             headers => '{"X-Campaign": "spring", "List-Unsubscribe": "<https://example.org/u/1>"}')""",
    )

    kept = value(tx, "select headers from comms.email_message where message_id = %s", [message_id])
    assert kept == {"X-Campaign": "spring", "List-Unsubscribe": "<https://example.org/u/1>"}


@pytest.mark.parametrize(
    "recipient",
    [
        None,
        "",
        " ",
        "ada",
        "ada@",
        "@example.org",
        "ada@example..org",
        "ada@example.org.",
        "ada@example.org,bob@example.org",
        "ada@example.org;bob@example.org",
        "ada@example.org bob@example.org",
        "Ada <ada@example.org>",
        "ada@example.org\nBcc: bob@example.org",
        "ada@example.org\r\n",
        "ada@ex\tample.org",
        "a@b@example.org",
        "a" * 65 + "@example.org",
        "ada@" + "e" * 320,
        '"ada"@example.org',
        "ada@[127.0.0.1]",
    ],
)
def test_what_is_not_one_address_is_refused(tx: Connection, recipient: str | None) -> None:
    with refused(tx, "QF400", "recipient"):
        EMAIL.create(tx, recipient=recipient)


@pytest.mark.parametrize("field", ["subject", "sender", "reply_to"])
@pytest.mark.parametrize("text", ["Hello\nBcc: bob@example.org", "Hello\r\nX: 1", "Hello\x0b", "a\x7fb", ""])
def test_a_line_break_outside_the_body_is_refused(tx: Connection, field: str, text: str) -> None:
    with refused(tx, "QF400", field):
        EMAIL.create(tx, **{field: text})


@pytest.mark.parametrize(
    "headers",
    [
        '{"Bcc": "bob@example.org"}',
        '{"to": "bob@example.org"}',
        '{"Subject": "another"}',
        '{"X-A": "1\\r\\nBcc: bob@example.org"}',
        '{"X-A\\nBcc": "1"}',
        '{"X A": "1"}',
        '{"X-A:": "1"}',
        '{"": "1"}',
        '{"X-A": 1}',
        '{"X-A": null}',
        '{"X-A": ""}',
        "[]",
        '"X-A: 1"',
        "null",
    ],
)
def test_a_header_that_says_something_else_is_refused(tx: Connection, headers: str) -> None:
    with refused(tx, "QF400", "headers"):
        value(tx, "select comms.create_email_message('ada@example.org', 'Hi', 't', headers => %s)", [headers])


def test_an_email_without_a_body_is_refused(tx: Connection) -> None:
    with refused(tx, "QF400", "text_body, an html_body or both"):
        EMAIL.create(tx, text_body=None)


def test_a_body_that_is_too_long_is_refused(tx: Connection) -> None:
    EMAIL.create(tx, text_body="x" * 2**19, html_body="x" * 2**19)
    with refused(tx, "QF413", "1048576"):
        EMAIL.create(tx, text_body="x" * 2**19, html_body="x" * 2**19 + "x")


@pytest.mark.parametrize(
    ("headers", "part"),
    [
        ({f"X-{n}": "v" for n in range(51)}, "50 fields"),
        ({f"X-{n}": "v" * 900 for n in range(40)}, "32768 bytes in total"),
        ({f"X-{n}": "v" * 900 for n in range(60_000)}, "32768 bytes in total"),
    ],
    ids=["many", "long", "both"],
)
def test_headers_are_bounded_in_number_and_size(tx: Connection, headers: dict[str, str], part: str) -> None:
    with refused(tx, "QF413", part):
        value(
            tx,
            "select comms.create_email_message('ada@example.org', 'Hi', 't', headers => %s)",
            [json.dumps(headers)],
        )
    assert rows(tx, "select from comms.message") == []


@pytest.mark.parametrize(
    ("field", "most", "code"),
    [("subject", 500, "QF413"), ("sender", 1000, "QF400"), ("reply_to", 1000, "QF400")],
)
def test_every_field_is_bounded(tx: Connection, field: str, most: int, code: str) -> None:
    EMAIL.create(tx, **{field: "x" * most})
    with refused(tx, code, field):
        EMAIL.create(tx, **{field: "x" * (most + 1)})


def test_fifty_headers_are_taken(tx: Connection) -> None:
    headers = json.dumps({f"X-{n}": "v" * 500 for n in range(50)})
    assert value(
        tx, "select comms.create_email_message('ada@example.org', 'Hi', 't', headers => %s)", [headers]
    )


@pytest.mark.parametrize(
    "recipient",
    [
        *(None, "", "015112345678", "0049151", "+", "+0151", "+12", "+1234567890123456"),
        *("+49 151 12345678", "+49151\n", "+4915112345678,+491", "tel:+4915112345678"),
    ],
)
def test_a_number_that_is_not_in_e164_form_is_refused(tx: Connection, recipient: str | None) -> None:
    with refused(tx, "QF400", "recipient"):
        SMS.create(tx, recipient=recipient)


@pytest.mark.parametrize(("text", "code"), [(None, "QF400"), ("", "QF400"), ("x" * 1601, "QF413")])
def test_a_text_that_is_empty_or_too_long_is_refused(tx: Connection, text: str | None, code: str) -> None:
    with refused(tx, code):
        SMS.create(tx, text_body=text)


def test_a_text_of_the_greatest_length_is_taken(tx: Connection) -> None:
    assert SMS.create(tx, text_body="é" * 1600)


@pytest.mark.parametrize(
    ("terms", "part"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 21}, "max_attempts"),
        ({"max_attempts": None}, "max_attempts"),
        ({"when_unknown": "perhaps"}, "when_unknown"),
        ({"when_unknown": None}, "when_unknown"),
        ({"retry_for": None}, "retry_for"),
        ({"retry_for": "-1 second"}, "retry_for"),
        ({"retry_for": "32 days"}, "retry_for"),
        ({"scheduled_at": "infinity"}, "scheduled_at"),
        ({"scheduled_at": "1960-01-01 00:00Z"}, "scheduled_at"),
    ],
)
def test_terms_that_make_no_sense_are_refused(
    tx: Connection, channel: Channel, terms: dict[str, Any], part: str
) -> None:
    message_id = channel.create(tx)
    with refused(tx, "QF400", part):
        channel.kick_off(tx, message_id=message_id, **terms)


def test_a_message_that_does_not_exist_is_not_found(tx: Connection, channel: Channel) -> None:
    with refused(tx, "QF404", "there is no"):
        channel.kick_off(tx, message_id=10**12)


def test_a_message_of_the_other_channel_is_not_found(tx: Connection) -> None:
    email, sms = EMAIL.create(tx), SMS.create(tx)

    with refused(tx, "QF404", f"there is no sms message {email}"):
        SMS.kick_off(tx, message_id=email)
    with refused(tx, "QF404", f"there is no email message {sms}"):
        EMAIL.kick_off(tx, message_id=sms)


def test_a_time_that_has_passed_means_now(tx: Connection, channel: Channel, clock: Clock) -> None:
    send = channel.kick_off(tx, scheduled_at=clock.after(-3600))

    assert channel.supervise(tx, send)["decision"] == "attempt"


class TestAsClients:
    """A login has its own messages and sends; those of others read as if they did not exist."""

    @pytest.fixture
    def ada(self, db: Database) -> Connection:
        return db.connect("holdfast_client")

    @pytest.fixture
    def eve(self, db: Database) -> Connection:
        admin = db.connect()
        if not rows(admin, "select from pg_roles where rolname = 'eve'"):
            admin.execute("create role eve login in role holdfast_client")
        return db.connect("eve")

    def test_a_client_sends_and_sees_where_it_stands(self, ada: Connection, channel: Channel) -> None:
        send = channel.kick_off(ada)

        assert channel.status(ada, send)["status"] == "scheduled"

    def test_a_message_of_another_login_cannot_be_sent_or_seen(
        self, ada: Connection, eve: Connection, channel: Channel
    ) -> None:
        message_id = channel.create(ada)
        send = channel.kick_off(ada, message_id=message_id)

        assert rows(eve, f"select * from {channel.status_view}") == []
        with pytest.raises(Exception, match=f"there is no {channel.name} message {message_id}"):
            channel.kick_off(eve, message_id=message_id)
        assert channel.status(ada, send)["status"] == "scheduled"

    def test_a_reader_sees_all_sends(self, db: Database, ada: Connection, channel: Channel) -> None:
        send = channel.kick_off(ada)

        assert channel.status(db.connect("holdfast_reader"), send)["created_by"] == "holdfast_client_login"
