"""Sends e-mail through an SMTP server. A repeated send arrives twice, with the same Message-ID."""

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

from holdfast.errors import ConfigurationError
from holdfast.messages.message_checks import NamedAddress, parse_address
from holdfast.messages.provider import Email, SendFailed, Sent, required_sender, required_setting
from holdfast.settings import Settings, variable_of
from holdfast.settings.values import is_loopback

MAX_CONNECTIONS = 10
QUIT_SECONDS = 2.0

_POLICY = SMTP.clone(cte_type="7bit")  # works with servers that support only ASCII
_PERMANENT = 500


class Smtp:
    """Opens a connection per message, so that a failure never affects the next message."""

    name = "smtp"
    key_retention = None

    def __init__(self, settings: Settings) -> None:
        self._host: str = required_setting(settings, "smtp_host", self.name)
        self._settings = settings
        self._seconds = settings.send_timeout.total_seconds()
        self._tls = None if settings.smtp_security == "none" else _tls_context(settings)
        if self._tls is None and not is_loopback(self._host):
            raise ConfigurationError(
                f"{variable_of('smtp_security')}='none' is not allowed: {self._host} is not this machine",
                hint="Use starttls or tls to encrypt the messages in transit.",
            )
        self._connections = asyncio.Semaphore(MAX_CONNECTIONS)

    async def send(self, email: Email) -> Sent:
        sender = parse_address("sender", required_sender(email.sender, "email_sender"))
        message = build_message(email, sender)
        server = self._server()
        async with self._connections:
            try:
                response = await self._deliver(server, sender.address, email.to, message.as_bytes())
            finally:
                server.close()
        return Sent(self.name, message["Message-ID"], {"response": response[:200]})

    async def close(self) -> None:
        """No connection stays open."""

    async def _deliver(self, server: aiosmtplib.SMTP, sender: str, to: str, message: bytes) -> str:
        data_sent = False
        try:
            async with asyncio.timeout(self._seconds):
                await server.connect()
                await server.mail(sender)
                await server.rcpt(to)
                data_sent = True
                response = await server.data(message)
        except aiosmtplib.SMTPResponseException as error:
            raise _refusal(error) from error
        except (aiosmtplib.SMTPException, ssl.SSLError, OSError) as error:
            raise _lost(error, data_sent=data_sent) from error
        with contextlib.suppress(aiosmtplib.SMTPException, OSError):
            await server.quit(timeout=QUIT_SECONDS)
        return str(response.message)

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
            start_tls=settings.smtp_security == "starttls",  # fails if the server does not offer it
            tls_context=self._tls,
        )


def _tls_context(settings: Settings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.smtp_ca_file)
    except OSError as error:
        raise ConfigurationError(
            f"{variable_of('smtp_ca_file')}={str(settings.smtp_ca_file)!r} cannot be read: {error}"
        ) from None


def build_message(email: Email, sender: NamedAddress) -> EmailMessage:
    message = EmailMessage(policy=_POLICY)
    message["From"] = _address(sender)
    message["To"] = _address(NamedAddress("", email.to))
    message["Subject"] = email.subject
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = message_id(email.idempotency_key, sender.address)
    if email.reply_to:
        message["Reply-To"] = _address(parse_address("reply_to", email.reply_to))
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
    """Derived from the idempotency key, so that recipients can recognize duplicates."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:40]
    return f"<{digest}@{sender.rpartition('@')[2]}>"


def _address(sender: NamedAddress) -> Address:
    return Address(display_name=sender.name, addr_spec=sender.address)


def _refusal(error: aiosmtplib.SMTPResponseException) -> SendFailed:
    message = f"the mail server returned {error.code}: {error.message}"[:500]
    if error.code >= _PERMANENT:
        return SendFailed("rejected", message, permanent=True)
    return SendFailed("unavailable", message)


def _lost(error: BaseException, *, data_sent: bool) -> SendFailed:
    detail = str(error)[:500] or type(error).__name__
    if data_sent:
        return SendFailed(
            "outcome_unknown",
            f"the mail server did not respond and may have sent the message: {detail}",
            outcome_unknown=True,
        )
    return SendFailed("unreachable", f"the mail server cannot be reached: {detail}")
