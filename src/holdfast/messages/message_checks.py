"""Checks the fields of messages before a provider sees them.

A header field is one line of plain text, and an address is exactly one address. Anything that mail servers or
providers might interpret in different ways is refused here.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import InvalidArgument, TooLarge
from holdfast.messages.provider import Email, Sms

MAX_SUBJECT = 500
MAX_BODY_BYTES = 1024 * 1024
MAX_SMS = 1600
MAX_NAME = 200
MAX_HEADERS = 50
MAX_HEADER = 900
MAX_KEY = 256

_LOCAL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"(?P<local>{_LOCAL})@(?P<domain>{_LABEL}(?:\.{_LABEL})+|localhost)")
_NAMED = re.compile(r'(?P<name>"(?:[^"\\]|\\["\\])*"|[^"<>]*?)\s*<(?P<address>[^<>\s]+)>')
_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
_SMS_SENDER = re.compile(
    r"\+[1-9][0-9]{6,14}|[0-9]{3,8}|MG[0-9a-f]{32}|(?=.*[A-Za-z])[A-Za-z0-9](?:[A-Za-z0-9 ]{0,9}[A-Za-z0-9])?"
)
_HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,75}")
_KEY = re.compile(r"[!-~](?:[ -~]*[!-~])?")
# Headers written from the message itself or by servers on the way.
_OUR_HEADERS = re.compile(
    r"to|cc|bcc|from|sender|subject|reply-to|date|message-id|return-path|received|mime-version"
    r"|content-.*|resent-.*|dkim-.*|arc-.*|authentication-results",
    re.IGNORECASE,
)
# Mail clients decode encoded words, even to line breaks; so does Python when it writes a header.
_ENCODED = "=?"
_SPECIALS = re.compile(r'[()<>@,;:\\".\[\]]')


@dataclass(frozen=True, slots=True)
class NamedAddress:
    """An e-mail address with an optional display name."""

    name: str
    address: str

    def __str__(self) -> str:
        """As in a header, with non-ASCII characters unencoded."""
        if not self.name:
            return self.address
        escaped = re.sub(r'(["\\])', r"\\\1", self.name)
        return (
            f'"{escaped}" <{self.address}>'
            if _SPECIALS.search(self.name)
            else f"{self.name} <{self.address}>"
        )


def check_email(email: Email) -> None:
    """Raise InvalidArgument, which names the field and the reason."""
    check_address("to", email.to)
    check_subject(email.subject)
    if email.sender is not None:
        parse_address("sender", email.sender)
    if email.reply_to is not None:
        parse_address("reply_to", email.reply_to)
    check_headers(email.headers)
    check_bodies(email.text, email.html)
    check_key(email.idempotency_key)


def check_sms(sms: Sms) -> None:
    check_number("to", sms.to)
    check_sms_text(sms.text)
    if sms.sender is not None:
        check_sms_sender("sender", sms.sender)
    check_key(sms.idempotency_key)


def check_address(field: str, given: str) -> None:
    _check_line(field, given)
    match = _ADDRESS.fullmatch(given)
    if match is None or len(match["local"]) > 64 or len(given) > 254:  # noqa: PLR2004 - of RFC 5321
        raise InvalidArgument(
            f"{field} is not a single e-mail address: {given[:100]!r}",
            hint="Use one ASCII address such as ada@example.com. Write an international domain as xn--….",
        )


def parse_address(field: str, given: str) -> NamedAddress:
    """ada@example.com, Ada <ada@example.com> or "Lovelace, Ada" <ada@example.com>."""
    _check_line(field, given)
    match = _NAMED.fullmatch(given.strip())
    if match is None:
        check_address(field, given)
        return NamedAddress("", given)
    check_address(field, match["address"])
    name = match["name"].strip()
    if name.startswith('"'):
        name = re.sub(r'\\(["\\])', r"\1", name[1:-1])
    elif _SPECIALS.search(name.replace(".", "")):
        raise InvalidArgument(
            f"{field} is not a single e-mail address: {given[:100]!r}",
            hint='Put a name with special characters in quotes: "Lovelace, Ada" <ada@example.com>.',
        )
    if len(name) > MAX_NAME:
        raise TooLarge(f"the name in {field} is longer than {MAX_NAME} characters")
    return NamedAddress(name, match["address"])


def check_subject(subject: str) -> None:
    _check_line("subject", subject)
    if not subject.strip():
        raise InvalidArgument("subject is empty")
    if len(subject) > MAX_SUBJECT:
        raise TooLarge(f"subject is longer than {MAX_SUBJECT} characters")


def check_headers(headers: Mapping[str, str]) -> None:
    if len(headers) > MAX_HEADERS:
        raise TooLarge(f"headers has more than {MAX_HEADERS} fields")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidArgument(f"headers has an invalid field name: {name[:100]!r}")
        if _OUR_HEADERS.fullmatch(name):
            raise InvalidArgument(f"headers cannot set {name}: it is written from the message itself")
        _check_line(f"headers[{name!r}]", value)
        if len(value.encode()) > MAX_HEADER:
            raise TooLarge(f"headers[{name!r}] is longer than {MAX_HEADER} bytes")
    if len({name.lower() for name in headers}) < len(headers):
        raise InvalidArgument("headers has the same field twice")


def check_bodies(text: str | None, html: str | None) -> None:
    if not (text and text.strip()) and not (html and html.strip()):
        raise InvalidArgument("the message is empty: give text, html or both")
    for field, body in (("text", text), ("html", html)):
        if body is not None:
            if len(body) > MAX_BODY_BYTES:
                raise TooLarge(f"{field} is longer than {MAX_BODY_BYTES} bytes")
            _check_body(field, body)
    if sum(len(body.encode()) for body in (text, html) if body is not None) > MAX_BODY_BYTES:
        raise TooLarge(f"text and html are longer than {MAX_BODY_BYTES} bytes together")


def check_number(field: str, given: str) -> None:
    if not _E164.fullmatch(given):
        raise InvalidArgument(
            f"{field} is not a single telephone number in E.164 form: {given[:100]!r}",
            hint="Use the country code and number in digits, such as +4915112345678.",
        )


def check_sms_text(text: str) -> None:
    if not text.strip():
        raise InvalidArgument("text is empty")
    _check_body("text", text)
    if len(text) > MAX_SMS:
        raise TooLarge(f"text is longer than {MAX_SMS} characters")


def check_sms_sender(field: str, given: str) -> None:
    if not _SMS_SENDER.fullmatch(given):
        raise InvalidArgument(
            f"{field} is not a valid sender of text messages: {given[:100]!r}",
            hint="Use a number such as +4915112345678, a short code, or a name of up to 11 letters.",
        )


def check_key(key: str) -> None:
    if len(key) > MAX_KEY or not _KEY.fullmatch(key):
        raise InvalidArgument(
            f"idempotency_key must have 1 to {MAX_KEY} printable ASCII characters: {key[:100]!r}"
        )


def _check_line(field: str, given: str) -> None:
    """Refuse all control characters: some libraries break lines at others than CR and LF."""
    for character in given:
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            raise InvalidArgument(f"{field} contains {character!r}, which is not allowed in a header field")
    if _ENCODED in given:
        raise InvalidArgument(
            f"{field} contains {_ENCODED!r}, which begins an encoded word in a header field"
        )


def _check_body(field: str, given: str) -> None:
    for character in given:
        if unicodedata.category(character) in ("Cc", "Cs") and character not in "\r\n\t":
            raise InvalidArgument(f"{field} contains {character!r}, which is not allowed in a message")
