import pytest

from holdfast._engine import Engine
from holdfast._engine.messages import keep_message, list_mailbox
from support.commands import Holdfast, answer
from support.database import Database


@pytest.fixture
def messages(engine: Engine) -> list[int]:
    email = engine.run(
        keep_message(
            "email",
            "ada@example.com",
            "k1",
            sender="shop@example.com",
            subject="Your code",
            text_body="Your code is 123.\nBye\x1b[31m",
            html_body="<p>Your code is <b>123</b></p>",
            headers={"X-Order": "7"},
        )
    )
    return [email, engine.run(keep_message("sms", "+4915112345678", "k2", text_body="Code 456"))]


def test_messages_are_listed_newest_first(holdfast: Holdfast, messages: list[int]) -> None:
    found = answer(holdfast("mailbox", "list", "--json"))["messages"]
    assert [one["mailbox_message_id"] for one in found] == messages[::-1]
    lines = holdfast("mailbox", "list").stdout.splitlines()
    assert lines[0].split() == ["id", "kept_at", "channel", "recipient", "subject", "text"]
    assert "Code 456" in lines[1]
    assert "Your code is 123." in lines[2]


def test_the_list_can_be_narrowed(holdfast: Holdfast, messages: list[int]) -> None:
    for options, expected in (
        (["--channel", "sms"], messages[1:]),
        (["--to", "ada@example.com"], messages[:1]),
        (["--before", str(messages[1])], messages[:1]),
        (["--limit", "1"], messages[1:]),
        (["--channel", "sms", "--to", "ada@example.com"], []),
    ):
        found = answer(holdfast("mailbox", "list", "--json", *options))["messages"]
        assert [one["mailbox_message_id"] for one in found] == expected, options


def test_an_empty_mailbox_is_no_error(holdfast: Holdfast) -> None:
    shown = holdfast("mailbox", "list")
    assert (shown.exit_code, shown.stderr) == (0, "No messages found.\n")


def test_a_message_is_shown_and_cannot_control_the_terminal(holdfast: Holdfast, messages: list[int]) -> None:
    shown = holdfast("mailbox", "show", str(messages[0])).stdout
    assert "Your code is 123.\nBye\\x1b[31m" in shown
    assert "\x1b" not in shown
    fields = dict(line.split(maxsplit=1) for line in shown.split("\n\n")[0].splitlines())
    assert (fields["from"], fields["to"], fields["X-Order"]) == ("shop@example.com", "ada@example.com", "7")
    assert f"holdfast mailbox show {messages[0]} --html" in shown
    assert answer(holdfast("mailbox", "show", str(messages[1]), "--json"))["text_body"] == "Code 456"


def test_the_html_is_printed_as_it_is(holdfast: Holdfast, messages: list[int]) -> None:
    assert (
        holdfast("mailbox", "show", str(messages[0]), "--html").stdout == "<p>Your code is <b>123</b></p>\n"
    )


def test_what_is_not_there_is_not_found(holdfast: Holdfast, messages: list[int]) -> None:
    missing = holdfast("mailbox", "show", "999")
    assert (missing.exit_code, "no message 999" in missing.stderr) == (4, True)
    assert holdfast("mailbox", "show", str(messages[1]), "--html").exit_code == 4


def test_the_mailbox_is_cleared(holdfast: Holdfast, messages: list[int]) -> None:
    assert holdfast("mailbox", "clear").stdout == "Removed 2 messages.\n"
    assert answer(holdfast("mailbox", "clear", "--json")) == {"removed": 0}


def test_a_reader_may_look_but_not_clear(db: Database, holdfast: Holdfast, messages: list[int]) -> None:
    reader = db.dsn_as("holdfast_reader")
    assert len(answer(holdfast("mailbox", "list", "--json", url=reader))["messages"]) == 2
    assert holdfast("mailbox", "clear", url=reader).exit_code == 7


def test_what_was_written_to_a_recipient_is_erased_with_a_reason(
    holdfast: Holdfast, engine: Engine, messages: list[int]
) -> None:
    assert holdfast("messages", "erase", "ada@example.com").exit_code == 2
    erased = holdfast("messages", "erase", "ADA@example.com", "--reason", "asked for")
    assert erased.stdout == "Erased 1 message.\n"
    assert [one.mailbox_message_id for one in engine.run(list_mailbox())] == messages[1:]
    again = answer(holdfast("messages", "erase", "ada@example.com", "--reason", "asked for", "--json"))
    assert again == {"erased": 0}
