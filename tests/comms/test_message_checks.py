"""What is refused before a provider sees it, and that nothing else can become another header."""

from email import message_from_bytes
from email.policy import SMTP
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidArgument, TooLarge
from holdfast.messages.message_checks import (
    MAX_BODY_BYTES,
    MAX_SMS,
    MAX_SUBJECT,
    check_email,
    check_sms,
    parse_address,
)
from holdfast.messages.providers.smtp import build_message
from support.messages import email, sms

BREAKS = ["\r\n", "\r", "\n", "\0", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
HEADER = "Bcc: eve@example.com"


@pytest.mark.parametrize("break_", BREAKS)
@pytest.mark.parametrize("field", ["to", "subject", "sender", "reply_to"])
@pytest.mark.parametrize(
    "shape", ["x@example.com{}" + HEADER, "{}" + HEADER, "x@example.com{}", "Ada{} <x@example.com>"]
)
def test_a_line_break_in_a_header_field_is_refused(field: str, break_: str, shape: str) -> None:
    with pytest.raises(InvalidArgument, match=field):
        check_email(email(**{field: shape.format(break_)}))


@pytest.mark.parametrize("break_", BREAKS)
def test_a_line_break_in_a_header_of_the_callers_is_refused(break_: str) -> None:
    with pytest.raises(InvalidArgument, match="X-Order"):
        check_email(email(headers={"X-Order": f"7{break_}{HEADER}"}))
    with pytest.raises(InvalidArgument, match="invalid field name"):
        check_email(email(headers={f"X-Order: 7{break_}Bcc": "eve@example.com"}))


@pytest.mark.parametrize("word", ["=?utf-8?q?a=0D=0ABcc:_e@example.com?=", "a =?utf-8?b?DQpCY2M=?= b", "=?"])
def test_an_encoded_word_is_refused(word: str) -> None:
    for fields in (
        {"subject": word},
        {"sender": f'"{word}" <a@example.com>'},
        {"headers": {"X-Order": word}},
    ):
        with pytest.raises(InvalidArgument, match=f"{next(iter(fields))}.* encoded word"):
            check_email(email(**fields))


@pytest.mark.parametrize(
    "name",
    ["Bcc", "bcc", "To", "FROM", "Content-Type", "MIME-Version", "Sender", "Resent-To", "DKIM-Signature"],
)
def test_what_the_message_is_made_of_cannot_be_set(name: str) -> None:
    with pytest.raises(InvalidArgument, match="written from the message itself"):
        check_email(email(headers={name: "eve@example.com"}))


@pytest.mark.parametrize("name", ["", "X Order", "X:Order", "X-Ordér", "-X", "7", "X" * 77])
def test_a_header_whose_name_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="invalid field name"):
        check_email(email(headers={name: "7"}))


def test_a_header_given_twice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="twice"):
        check_email(email(headers={"X-Order": "7", "x-order": "8"}))


@pytest.mark.parametrize(
    "address",
    [
        "ada@example.com, eve@example.com",
        "ada@example.com,eve@example.com",
        "ada@example.com;eve@example.com",
        "ada@example.com eve@example.com",
        "ada@example.com>, <eve@example.com",
        "Ada <ada@example.com>",
        "<ada@example.com>",
        "friends: ada@example.com;",
        "ada@eve@example.com",
        '"ada"@example.com',
        '"ada,eve@example.com"@example.com',
        "ada(eve@example.com)@example.com",
        "@example.com",
        "ada@",
        "ada",
        "",
        " ",
        "ada@example",
        "ada@.example.com",
        "ada@example..com",
        "ada@-example.com",
        "ada@example-.com",
        "ada@[127.0.0.1]",
        ".ada@example.com",
        "ada.@example.com",
        "a..da@example.com",
        "ada @example.com",
        "ada@ example.com",
        " ada@example.com",
        "ada@example.com ",
        "adä@example.com",
        "ada@exämple.com",
        "ada@example.com\u200b",
        "a" * 65 + "@example.com",
        "ada@" + "a." * 130 + "com",
        "ada@" + "a" * 64 + ".com",
        "ada%00@example.com\0",
    ],
)
def test_what_is_not_one_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgument, match="to "):
        check_email(email(to=address))


@pytest.mark.parametrize(
    "address",
    [
        "ada@example.com",
        "ada+mail.s_o-n@sub.example.co.uk",
        "o'hara@example.com",
        "ada@xn--exmple-cua.com",
        "7@7.example",
        "root@localhost",
        "a" * 64 + "@example.com",
    ],
)
def test_an_address_is_taken(address: str) -> None:
    check_email(email(to=address, reply_to=address))


@pytest.mark.parametrize(
    ("given", "name", "written"),
    [
        ("ada@example.com", "", "ada@example.com"),
        ("Ada <ada@example.com>", "Ada", "Ada <ada@example.com>"),
        ("Ada K. Lovelace <ada@example.com>", "Ada K. Lovelace", '"Ada K. Lovelace" <ada@example.com>'),
        ('"Lovelace, Ada" <ada@example.com>', "Lovelace, Ada", '"Lovelace, Ada" <ada@example.com>'),
        (r'"The \"Ada\"" <ada@example.com>', 'The "Ada"', r'"The \"Ada\"" <ada@example.com>'),
        ("Адам <ada@example.com>", "Адам", "Адам <ada@example.com>"),
        ("<ada@example.com>", "", "ada@example.com"),
    ],
)
def test_a_sender_may_have_a_name(given: str, name: str, written: str) -> None:
    mailbox = parse_address("sender", given)
    assert (mailbox.name, mailbox.address, str(mailbox)) == (name, "ada@example.com", written)


@pytest.mark.parametrize(
    "given",
    [
        "Ada <ada@example.com>, Eve <eve@example.com>",
        "ada@example.com, Eve <eve@example.com>",
        "Lovelace, Ada <ada@example.com>",
        "eve@example.com <ada@example.com>",
        '"Ada" eve@example.com <ada@example.com>',
        '"Ada <ada@example.com>',
        "Ada <ada@example.com> <eve@example.com>",
        "Ada <ada@example.com> (eve)",
        "Ada <>",
        "Ada",
        "",
        "x" * 201 + " <ada@example.com>",
    ],
)
def test_a_sender_that_is_not_one_mailbox_is_refused(given: str) -> None:
    with pytest.raises(InvalidArgument, match="sender"):
        check_email(email(sender=given))


@pytest.mark.parametrize(
    "fields",
    [
        {"subject": "x" * (MAX_SUBJECT + 1)},
        {"text": "x" * (MAX_BODY_BYTES + 1)},
        {"html": "é" * (MAX_BODY_BYTES // 2 + 1)},
        {"headers": {"X-Order": "é" * 451}},
        {"headers": {f"X-{n}": "7" for n in range(51)}},
    ],
)
def test_what_is_too_long_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(TooLarge, match=next(iter(fields))):
        check_email(email(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"subject": ""},
        {"subject": "  "},
        {"text": None},
        {"text": " \n"},
        {"text": "a\0b"},
        {"text": "a\x1bb"},
        {"html": "\ud800"},
        {"subject": "\ud800"},
        {"idempotency_key": ""},
        {"idempotency_key": "k" * 257},
        {"idempotency_key": "k\r\nx: y"},
        {"idempotency_key": " k"},
        {"idempotency_key": "ключ"},
    ],
)
def test_what_cannot_be_sent_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        check_email(email(**fields))


@pytest.mark.parametrize(
    "number",
    [
        "015112345678",
        "004915112345678",
        "4915112345678",
        "+0915112345678",
        "+49 151 12345678",
        "+49-151-12345678",
        "+49(0)15112345678",
        "+4915112345678,+4915112345679",
        "+4915112345678\n",
        "+491511",
        "+4915112345678901",
        "+٤٩١٥١١٢٣٤٥٦٧٨",
        "+49151x2345678",
        "tel:+4915112345678",
        "",
    ],
)
def test_what_is_not_one_number_is_refused(number: str) -> None:
    with pytest.raises(InvalidArgument, match=r"to is not a single telephone number in E\.164 form"):
        check_sms(sms(to=number))


@pytest.mark.parametrize(
    "fields", [{"text": ""}, {"text": " "}, {"text": "a\0"}, {"text": "\udfff"}, {"idempotency_key": ""}]
)
def test_a_text_that_cannot_be_sent_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        check_sms(sms(**fields))


def test_a_text_that_is_too_long_is_refused() -> None:
    check_sms(sms(text="x" * MAX_SMS))
    with pytest.raises(TooLarge, match="text"):
        check_sms(sms(text="x" * (MAX_SMS + 1)))


@pytest.mark.parametrize("sender", ["+15005550006", "12345", "Shop", "Shop 24", "MG" + "0" * 32])
def test_a_sender_of_texts_is_taken(sender: str) -> None:
    check_sms(sms(sender=sender))


@pytest.mark.parametrize(
    "sender", ["", "12", "A shop with a long name", "Sh\nop", "Shöp", " Shop", "MG123456789012"]
)
def test_a_sender_of_texts_that_is_none_is_refused(sender: str) -> None:
    with pytest.raises(InvalidArgument, match="sender"):
        check_sms(sms(sender=sender))


# Texts that are likely to break out of a field, if any can.
_PIECES = st.sampled_from(
    [*BREAKS, " ", "\t", ":", ",", ";", "<", ">", '"', "\\", "=?utf-8?q?=0A?=", HEADER, "a@b.example"]
)
_TEXT = st.lists(_PIECES | st.text(max_size=3), max_size=6).map("".join)
_ADDRESS = _TEXT | _TEXT.map(lambda text: f"{text} <ada@example.com>") | st.just("ada@example.com")
_NAMES = st.sampled_from(["X-Order", "List-Unsubscribe", "Bcc", "X-Order\nBcc"]) | _TEXT


@settings(max_examples=400, deadline=None)
@given(
    to=_ADDRESS | st.just("ada@example.org"),
    subject=_TEXT,
    sender=_ADDRESS,
    reply_to=_ADDRESS | st.none(),
    headers=st.dictionaries(_NAMES, _TEXT, max_size=2),
)
def test_what_is_taken_has_the_headers_that_were_asked_for_and_no_others(**fields: Any) -> None:
    asked = email(**fields)
    try:
        check_email(asked)
    except InvalidArgument:
        return
    raw = build_message(asked, parse_address("sender", asked.sender or "")).as_bytes()
    read = message_from_bytes(raw, policy=cast("Any", SMTP))
    expected = {"from", "to", "subject", "date", "message-id", "content-type", "mime-version"}
    expected |= {"content-transfer-encoding"} | {name.lower() for name in asked.headers}
    expected |= {"reply-to"} if asked.reply_to else set()
    assert sorted(name.lower() for name in read.keys()) == sorted(expected)  # noqa: SIM118 - with repetitions
    assert str(read["To"]) == asked.to
    for name, value in {"Subject": asked.subject, **asked.headers}.items():
        assert str(read[name]).split() == value.split()
