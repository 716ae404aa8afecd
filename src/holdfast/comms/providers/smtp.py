"""E-mail through a mail server. A message sent twice arrives twice, but under the same Message-ID."""

import asyncio
import contextlib
import hashlib
import ssl
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

import aiosmtplib

from holdfast.comms.message_checks import Mailbox, parse_mailbox
from holdfast.comms.provider import Email, SendFailed, Sent
from holdfast.comms.providers.required import required, required_sender
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings, is_loopback, variable_of

MAX_CONNECTIONS = 10
QUIT_SECONDS = 2.0

_POLICY = SMTP.clone(cte_type="7bit")  # no server on the way has to know more than ASCII
_PERMANENT = 500


class Smtp:
    """A connection per message: nothing that goes wrong with one message is left to the next."""

    name = "smtp"
    key_retention = None

    def __init__(self, settings: Settings) -> None:
        self._host: str = required(settings, "smtp_host", self.name)
        self._settings = settings
        self._seconds = settings.send_timeout.total_seconds()
        self._tls = None if settings.smtp_security == "none" else _context(settings)
        if self._tls is None and not is_loopback(self._host):
            raise ConfigurationError(
                f"{variable_of('smtp_security')}='none' cannot be used: {self._host} is not this machine",
                hint="Use starttls or tls, so that nobody on the way reads the messages.",
            )
        self._turn = asyncio.Semaphore(MAX_CONNECTIONS)

    async def send(self, email: Email) -> Sent:
        sender = parse_mailbox("sender", required_sender(email.sender, "email_sender"))
        message = build_message(email, sender)
        server = self._server()
        async with self._turn:
            try:
                answer = await self._deliver(server, sender.address, email.to, message.as_bytes())
            finally:
                server.close()
        return Sent(self.name, message["Message-ID"], {"answer": answer[:200]})

    async def close(self) -> None:
        """Nothing is kept open."""

    async def _deliver(self, server: aiosmtplib.SMTP, sender: str, to: str, message: bytes) -> str:
        handed_over = False
        try:
            async with asyncio.timeout(self._seconds):
                await server.connect()
                await server.mail(sender)
                await server.rcpt(to)
                handed_over = True
                answer = await server.data(message)
        except aiosmtplib.SMTPResponseException as error:
            raise _refusal(error) from error
        except (aiosmtplib.SMTPException, ssl.SSLError, OSError) as error:
            raise _lost(error, handed_over=handed_over) from error
        with contextlib.suppress(aiosmtplib.SMTPException, OSError):
            await server.quit(timeout=QUIT_SECONDS)
        return str(answer.message)

    def _server(self) -> aiosmtplib.SMTP:
        settings = self._settings
        password = settings.smtp_password
        return aiosmtplib.SMTP(
            hostname=self._host,
            port=settings.smtp_port,
            username=settings.smtp_username,
            password=password.get_secret_value() if password else None,
            timeout=self._seconds,
            use_tls=settings.smtp_security == "tls",
            start_tls=settings.smtp_security
            == "starttls",  # also if the server does not offer it: then it fails
            tls_context=self._tls,
        )


def _context(settings: Settings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.smtp_ca_file)
    except OSError as error:
        raise ConfigurationError(
            f"{variable_of('smtp_ca_file')}={str(settings.smtp_ca_file)!r} cannot be read: {error}"
        ) from None


def build_message(email: Email, sender: Mailbox) -> EmailMessage:
    message = EmailMessage(policy=_POLICY)
    message["From"] = _address(sender)
    message["To"] = _address(Mailbox("", email.to))
    message["Subject"] = email.subject
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = message_id(email.idempotency_key, sender.address)
    if email.reply_to:
        message["Reply-To"] = _address(parse_mailbox("reply_to", email.reply_to))
    for name, value in email.headers.items():
        message[name] = value
    if email.text is not None:
        message.set_content(email.text)
    if email.html is not None:
        if email.text is None:
            message.set_content(email.html, subtype="html")
        else:
            message.add_alternative(email.html, subtype="html")
    return message


def message_id(key: str, sender: str) -> str:
    """The same for the same key, so that whoever gets a message twice can tell."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:40]
    return f"<{digest}@{sender.rpartition('@')[2]}>"


def _address(mailbox: Mailbox) -> Address:
    return Address(display_name=mailbox.name, addr_spec=mailbox.address)


def _refusal(error: aiosmtplib.SMTPResponseException) -> SendFailed:
    message = f"the mail server answered {error.code}: {error.message}"[:500]
    if error.code >= _PERMANENT:
        return SendFailed("rejected", message, permanent=True)
    return SendFailed("unavailable", message)


def _lost(error: BaseException, *, handed_over: bool) -> SendFailed:
    words = str(error)[:500] or type(error).__name__
    if handed_over:
        return SendFailed(
            "outcome_unknown",
            f"the mail server did not answer, and may have sent the message: {words}",
            outcome_unknown=True,
        )
    return SendFailed("unreachable", f"the mail server cannot be reached: {words}")
