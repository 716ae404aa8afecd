import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from holdfast.errors import ConfigurationError
from holdfast.messages.provider import SendFailed
from holdfast.messages.providers.smtp import Smtp
from holdfast.settings import Settings
from support.mail_server import PASSWORD, USER, MailServer, authority, running, server_context
from support.messages import EMAIL, email


@pytest.fixture
def plain() -> Iterator[MailServer]:
    with running(MailServer()) as server:
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    return authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def certificate(certificates: tuple[trustme.CA, Path]) -> ssl.SSLContext:
    return server_context(certificates[0], "127.0.0.1")


def provider(server: MailServer, security: str = "none", **more: Any) -> Smtp:
    given = {"smtp_host": "127.0.0.1", "smtp_port": server.port, "smtp_security": security}
    return Smtp(Settings.load(**{"email_provider": "smtp", **given, **more}))


async def failure(smtp: Smtp) -> SendFailed:
    with pytest.raises(SendFailed) as caught:
        await smtp.send(EMAIL)
    assert PASSWORD not in repr(caught.value) + caught.value.message
    return caught.value


async def test_a_message_is_delivered_as_it_was_given(plain: MailServer) -> None:
    whole = email(
        subject="Grüße",
        text="Guten Tag\n.\n..\nEnde",
        html="<p>Guten Tag</p>",
        sender='"Müller, Läden" <shop@example.com>',
        reply_to="Ada <ada@example.com>",
        headers={"X-Order": "7"},
    )
    sent = await provider(plain).send(whole)
    [message], [envelope] = plain.delivered, plain.envelopes
    assert (envelope.mail_from, envelope.rcpt_tos) == ("shop@example.com", ["ada@example.org"])
    assert {name: str(message[name]) for name in ("From", "To", "Subject", "Reply-To", "X-Order")} == {
        "From": '"Müller, Läden" <shop@example.com>',
        "To": "ada@example.org",
        "Subject": "Grüße",
        "Reply-To": "Ada <ada@example.com>",
        "X-Order": "7",
    }
    text, html = message.iter_parts()
    assert text.get_content() == "Guten Tag\r\n.\r\n..\r\nEnde\r\n"
    assert html.get_content() == "<p>Guten Tag</p>\r\n"
    assert sent.message_id == message["Message-ID"]
    assert all(byte < 128 for byte in plain.raw[0])


async def test_a_message_may_have_html_alone(plain: MailServer) -> None:
    await provider(plain).send(email(text=None, html="<p>Hello</p>"))
    assert plain.delivered[0].get_content_type() == "text/html"


async def test_a_message_that_is_sent_twice_has_the_same_message_id(plain: MailServer) -> None:
    smtp = provider(plain)
    await smtp.send(EMAIL)
    await smtp.send(EMAIL)
    await smtp.send(email(idempotency_key="email-2"))
    first, second, third = (message["Message-ID"] for message in plain.delivered)
    assert first == second != third
    assert smtp.key_retention is None


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_the_way_is_encrypted_and_the_password_is_taken(
    security: str, certificates: tuple[trustme.CA, Path], certificate: ssl.SSLContext
) -> None:
    with running(MailServer(), **{security: certificate}) as server:
        login = {"smtp_username": USER, "smtp_password": PASSWORD}
        await provider(server, security, smtp_ca_file=certificates[1], **login).send(EMAIL)
        assert len(server.delivered) == 1


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_a_certificate_of_nobody_we_trust_is_refused(
    security: str, certificate: ssl.SSLContext
) -> None:
    with running(MailServer(), **{security: certificate}) as server:
        failed = await failure(provider(server, security))
        assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("unreachable", False, False)
        assert "certificate" in failed.message.lower()
        assert server.delivered == []


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_a_certificate_of_another_host_is_refused(
    security: str, certificates: tuple[trustme.CA, Path]
) -> None:
    other = server_context(certificates[0], "mail.example.com")
    with running(MailServer(), **{security: other}) as server:
        failed = await failure(provider(server, security, smtp_ca_file=certificates[1]))
        assert failed.kind == "unreachable"
        assert server.delivered == []


async def test_a_server_that_offers_no_encryption_gets_nothing(plain: MailServer) -> None:
    failed = await failure(provider(plain, "starttls"))
    assert not failed.outcome_unknown
    assert plain.delivered == []


async def test_a_wrong_password_is_permanent_and_shown_nowhere(
    certificates: tuple[trustme.CA, Path], certificate: ssl.SSLContext
) -> None:
    with running(MailServer(), starttls=certificate) as server:
        login = {"smtp_username": USER, "smtp_password": PASSWORD[::-1]}
        failed = await failure(provider(server, "starttls", smtp_ca_file=certificates[1], **login))
    assert (failed.kind, failed.permanent) == ("rejected", True)
    assert PASSWORD[::-1] not in failed.message


@pytest.mark.parametrize("command", ["MAIL", "RCPT", "DATA"])
@pytest.mark.parametrize(
    ("answer", "kind", "permanent"),
    [("550 no such user", "rejected", True), ("451 try later", "unavailable", False)],
)
async def test_what_the_server_says_decides(
    plain: MailServer, command: str, answer: str, kind: str, permanent: bool
) -> None:
    plain.answers[command] = answer
    failed = await failure(provider(plain))
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == (kind, permanent, False)
    assert answer[:3] in failed.message
    assert plain.delivered == []


@pytest.mark.parametrize("command", ["MAIL", "RCPT"])
async def test_a_cut_before_the_message_sends_nothing(plain: MailServer, command: str) -> None:
    plain.answers[command] = "cut"
    failed = await failure(provider(plain))
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("unreachable", False, False)


async def test_a_cut_after_the_message_leaves_the_outcome_unknown(plain: MailServer) -> None:
    plain.answers["DATA"] = "cut after"
    failed = await failure(provider(plain))
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("outcome_unknown", False, True)
    assert len(plain.delivered) == 1


async def test_silence_after_the_message_leaves_the_outcome_unknown(plain: MailServer) -> None:
    plain.answers["DATA"] = "silence"
    assert (await failure(provider(plain, send_timeout="1s"))).outcome_unknown


async def test_nobody_there_is_passing(plain: MailServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    failed = await failure(provider(plain, smtp_port=port))
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("unreachable", False, False)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "LOCALHOST"])
def test_the_way_may_be_open_to_this_machine_itself(host: str) -> None:
    Smtp(Settings.load(smtp_host=host, smtp_security="none"))


@pytest.mark.parametrize("host", ["mail.example.com", "10.0.0.1", "localhost.example.com", "0.0.0.0"])  # noqa: S104
def test_the_way_may_not_be_open_to_another(host: str) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_SMTP_SECURITY='none'"):
        Smtp(Settings.load(smtp_host=host, smtp_security="none"))


def test_certificates_that_are_not_there_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"HOLDFAST_SMTP_CA_FILE='/nowhere\.pem' cannot be read"):
        Smtp(Settings.load(smtp_host="mail.example.com", smtp_ca_file="/nowhere.pem"))


def test_without_a_host_there_is_no_provider() -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_SMTP_HOST is not set"):
        Smtp(Settings.load())
