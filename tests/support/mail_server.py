"""A real mail server, with certificates of an authority that only the test knows."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP as POLICY
from pathlib import Path
from typing import Any, cast

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "shop", "a-password-for-tests"


class MailServer:
    """Takes messages, unless it is told what to answer or to hang up instead."""

    def __init__(self) -> None:
        self.delivered: list[EmailMessage] = []
        self.raw: list[bytes] = []
        self.envelopes: list[Envelope] = []
        self.answers: dict[str, str] = {}
        """By command, what is said instead of yes; `cut` hangs up, `cut after` does so having taken it."""
        self.port = 0

    async def handle_MAIL(  # noqa: N802 - the names that aiosmtpd calls
        self, server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        envelope.mail_from = address
        return await self._say(server, "MAIL", "250 OK")

    async def handle_RCPT(  # noqa: N802 - as above
        self, server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        envelope.rcpt_tos.append(address)
        return await self._say(server, "RCPT", "250 OK")

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 - as above
        given = self.answers.get("DATA", "250 taken")
        if given.startswith("250") or given == "cut after":
            raw = cast("bytes", envelope.original_content)
            self.raw.append(raw)
            self.delivered.append(cast("EmailMessage", message_from_bytes(raw, policy=cast("Any", POLICY))))
            self.envelopes.append(envelope)
        return await self._say(server, "DATA", "250 taken")

    async def _say(self, server: SMTP, command: str, otherwise: str) -> str:
        answer = self.answers.get(command, otherwise)
        if answer.startswith("cut"):
            assert server.transport
            cast("asyncio.Transport", server.transport).abort()
        if answer == "silence":
            await asyncio.sleep(3600)
        return answer


def authority(tmp_path: Path) -> tuple[trustme.CA, Path]:
    ca = trustme.CA()
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(path)
    return ca, path


def server_context(ca: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(*names).configure_cert(context)
    return context


@contextmanager
def running(
    server: MailServer, *, starttls: ssl.SSLContext | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[MailServer]:
    def authenticate(smtp: SMTP, session: Session, envelope: Envelope, how: str, given: Any) -> AuthResult:
        assert isinstance(given, LoginPassword)
        known = (given.login, given.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=known, handled=False)

    controller = Controller(
        server,
        hostname="127.0.0.1",
        port=_free_port(),
        ssl_context=tls,
        tls_context=starttls,
        require_starttls=starttls is not None,
        authenticator=authenticate,
        auth_require_tls=starttls is not None,
    )
    controller.start()
    server.port = controller.port
    try:
        yield server
    finally:
        controller.stop()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
