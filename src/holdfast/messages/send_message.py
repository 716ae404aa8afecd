"""Sends e-mail and text messages: stores them, in the caller's transaction if given, and starts sending."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypedDict, Unpack, cast

from holdfast._connections.client import Client
from holdfast._connections.process_handle import ProcessHandle
from holdfast._connections.transaction import arun_in, run_in
from holdfast._connections.wait_ticket import WAIT_TTL
from holdfast._engine import Statement
from holdfast._engine import messages as statements
from holdfast._engine.messages import SendStatus
from holdfast.errors import InvalidArgument, NotFound
from holdfast.messages.message_checks import (
    check_address,
    check_bodies,
    check_headers,
    check_number,
    check_sms_sender,
    check_sms_text,
    check_subject,
    parse_address,
)
from holdfast.messages.templates import RenderedMessage, Template, load_template
from holdfast.settings import Settings


class SendTiming(TypedDict, total=False):
    """When to send, and how often to try. The SQL functions have the defaults."""

    scheduled_at: datetime | None
    max_attempts: int | None
    retry_for: timedelta | float | None
    when_unknown: Literal["retry", "stop"] | None


class EmailContent(SendTiming, total=False):
    subject: str | None
    text: str | None
    html: str | None
    template: str | Template | None
    values: Mapping[str, Any] | None
    sender: str | None
    reply_to: str | None
    headers: Mapping[str, str] | None


class SmsContent(SendTiming, total=False):
    text: str | None
    template: str | Template | None
    values: Mapping[str, Any] | None
    sender: str | None


class SendingApp(Protocol):
    """The part of an App that is used here."""

    @property
    def settings(self) -> Settings: ...

    def connect(self) -> Client: ...


class Sending:
    """A message that is being sent. `find_email` and `find_sms` return it by its id."""

    __slots__ = ("_app", "channel", "send_id")

    def __init__(self, channel: str, send_id: int, app: SendingApp | None) -> None:
        self.channel = channel
        self.send_id = send_id
        self._app = app

    def __repr__(self) -> str:
        return f"<Sending {self.channel} {self.send_id}>"

    def status(self) -> SendStatus:
        return self._found(self._client().run(statements.send_status(self.channel, self.send_id), "status"))

    async def astatus(self) -> SendStatus:
        found = await self._client().arun(statements.send_status(self.channel, self.send_id))
        return self._found(found)

    def wait_end(self, timeout: float | timedelta | None = None) -> SendStatus:
        """Wait until the message is sent, given up or cancelled, or raise TimeoutError."""
        return self._client().run_async(self.await_end(timeout), "wait", "await_end")

    async def await_end(self, timeout: float | timedelta | None = None) -> SendStatus:  # noqa: ASYNC109 - as for a task's result
        await self._process.await_end(timeout)
        return await self.astatus()

    def wait_url(self, ttl: float | timedelta = WAIT_TTL) -> str:
        """A URL at which a front end may wait for this message, and no other, until `ttl` has passed."""
        return self._process.wait_url(ttl)

    def cancel(self, reason: str | None = None) -> str:
        """Stop sending. Returns `cancelled`, or the decision if sending had already ended."""
        return self._process.cancel(reason)

    async def acancel(self, reason: str | None = None) -> str:
        return await self._process.acancel(reason)

    @property
    def _process(self) -> ProcessHandle:
        return ProcessHandle(f"comms.send_{self.channel}", self.send_id, self._owning_app)

    def _client(self) -> Client:
        return self._owning_app.connect()

    @property
    def _owning_app(self) -> SendingApp:
        if self._app is None:
            raise InvalidArgument(f"{self!r} has no database", hint="Pass app=… when you send the message.")
        return self._app

    def _found(self, status: SendStatus | None) -> SendStatus:
        if status is None:
            raise NotFound(
                f"there is no {self.channel} with id {self.send_id}",
                hint="If it was sent in a transaction, commit the transaction first.",
            )
        return status


def send_email(
    *, to: str, tx: Any = None, app: SendingApp | None = None, **content: Unpack[EmailContent]
) -> Sending:
    """Send an e-mail: when `tx` commits, or at once through the database of `app`."""
    statement = _email(to, content, app)
    return Sending("email", _run(statement, tx, app, "send_email"), app)


async def asend_email(
    *, to: str, tx: Any = None, app: SendingApp | None = None, **content: Unpack[EmailContent]
) -> Sending:
    statement = _email(to, content, app)
    return Sending("email", await _arun(statement, tx, app, "send_email"), app)


def send_sms(
    *, to: str, tx: Any = None, app: SendingApp | None = None, **content: Unpack[SmsContent]
) -> Sending:
    """Send a text message: when `tx` commits, or at once through the database of `app`."""
    statement = _sms(to, content, app)
    return Sending("sms", _run(statement, tx, app, "send_sms"), app)


async def asend_sms(
    *, to: str, tx: Any = None, app: SendingApp | None = None, **content: Unpack[SmsContent]
) -> Sending:
    statement = _sms(to, content, app)
    return Sending("sms", await _arun(statement, tx, app, "send_sms"), app)


def find_email(send_id: int, *, app: SendingApp) -> Sending:
    """Return an e-mail that was sent before, possibly by another program."""
    return Sending("email", send_id, app)


def find_sms(send_id: int, *, app: SendingApp) -> Sending:
    return Sending("sms", send_id, app)


def _email(to: str, content: EmailContent, app: SendingApp | None) -> Statement[int]:
    rendered = _rendered(content, app)
    subject, text, html = rendered.subject or "", rendered.text, rendered.html
    sender, reply_to = content.get("sender"), content.get("reply_to")
    headers = content.get("headers") or {}
    check_address("to", to)
    check_subject(subject)
    check_bodies(text, html)
    check_headers(headers)
    return statements.send_email(
        recipient=to,
        subject=subject,
        text_body=text,
        html_body=html,
        sender=None if sender is None else str(parse_address("sender", sender)),
        reply_to=None if reply_to is None else str(parse_address("reply_to", reply_to)),
        headers=headers,
        **_policy(content),
    )


def _sms(to: str, content: SmsContent, app: SendingApp | None) -> Statement[int]:
    text, sender = _rendered(content, app).text or "", content.get("sender")
    check_number("to", to)
    check_sms_text(text)
    if sender is not None:
        check_sms_sender("sender", sender)
    return statements.send_sms(recipient=to, text_body=text, sender=sender, **_policy(content))


def _rendered(content: EmailContent | SmsContent, app: SendingApp | None) -> RenderedMessage:
    """Arguments take precedence over the parts of the template."""
    given = RenderedMessage(*(cast("str | None", content.get(part)) for part in ("subject", "text", "html")))
    template = content.get("template")
    if template is None:
        if content.get("values") is not None:
            raise InvalidArgument("values were given without a template")
        return given
    directory = (app.settings if app else Settings.load()).templates
    source = load_template(template, directory) if isinstance(template, str) else template
    made = source.render(content.get("values"), directory=directory)
    return RenderedMessage(given.subject or made.subject, given.text or made.text, given.html or made.html)


def _policy(content: EmailContent | SmsContent) -> dict[str, Any]:
    given = {
        name: content.get(name) for name in ("scheduled_at", "max_attempts", "retry_for", "when_unknown")
    }
    seconds = given["retry_for"]
    if isinstance(seconds, int | float):
        given["retry_for"] = timedelta(seconds=seconds)
    return given


def _run(statement: Statement[int], tx: Any, app: SendingApp | None, method: str) -> int:
    if tx is not None:
        return run_in(tx, statement, method)
    return _required_app(app).connect().run(statement, method, repeatable=False)


async def _arun(statement: Statement[int], tx: Any, app: SendingApp | None, method: str) -> int:
    if tx is not None:
        return await arun_in(tx, statement, method)
    return await _required_app(app).connect().arun(statement, repeatable=False)


def _required_app(app: SendingApp | None) -> SendingApp:
    if app is None:
        raise InvalidArgument("pass tx=… or app=…: the message needs a database")
    return app
