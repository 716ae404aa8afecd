"""What applications call: write a message down and start to send it, in their own transaction."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypedDict, Unpack, cast

from holdfast.client import Client
from holdfast.client.process import ProcessHandle
from holdfast.client.span import WAIT_TTL
from holdfast.comms.message_checks import (
    check_address,
    check_bodies,
    check_headers,
    check_number,
    check_sms_sender,
    check_sms_text,
    check_subject,
    parse_mailbox,
)
from holdfast.comms.templates import Rendered, Template, load_template
from holdfast.connections.transaction import arun_in, run_in
from holdfast.engine import Statement
from holdfast.engine import messages as statements
from holdfast.engine.messages import SendStatus
from holdfast.errors import InvalidArgument, TaskNotFound
from holdfast.settings import Settings


class Policy(TypedDict, total=False):
    """When and how often. The functions in the database have defaults for these."""

    scheduled_at: datetime | None
    max_attempts: int | None
    retry_for: timedelta | float | None
    when_unknown: Literal["retry", "stop"] | None


class EmailContent(Policy, total=False):
    subject: str | None
    text: str | None
    html: str | None
    template: str | Template | None
    values: Mapping[str, Any] | None
    sender: str | None
    reply_to: str | None
    headers: Mapping[str, str] | None


class SmsContent(Policy, total=False):
    text: str | None
    template: str | Template | None
    values: Mapping[str, Any] | None
    sender: str | None


class Connects(Protocol):
    """An App, as far as it is needed here."""

    @property
    def settings(self) -> Settings: ...

    def connect(self) -> Client: ...


class Sending:
    """The send of one message, once it is committed. It may be found again by its id."""

    __slots__ = ("_app", "channel", "send_id")

    def __init__(self, channel: str, send_id: int, app: Connects | None) -> None:
        self.channel = channel
        self.send_id = send_id
        self._app = app

    def __repr__(self) -> str:
        return f"<Sending {self.channel} {self.send_id}>"

    def status(self) -> SendStatus:
        return self._found(
            self._client().run(lambda engine: engine.run(statements.send_status(self.channel, self.send_id)))
        )

    async def astatus(self) -> SendStatus:
        found = await self._client().arun(
            lambda engine: engine.run(statements.send_status(self.channel, self.send_id))
        )
        return self._found(found)

    def wait(self, timeout: float | None = None) -> SendStatus:
        """Until the message is sent, given up or cancelled. Raises TimeoutError after that many seconds."""
        return self._client().run_async(self.await_end(timeout))

    async def await_end(self, timeout: float | None = None) -> SendStatus:  # noqa: ASYNC109 - as for a task's result
        await self._process.await_end(timeout)
        return await self.astatus()

    def wait_url(self, ttl: float | timedelta = WAIT_TTL) -> str:
        """An address at which a front end may wait for this send, and for no other, until the ttl is over."""
        return self._process.wait_url(ttl)

    def cancel(self, reason: str | None = None) -> str:
        """Attempt nothing more. Returns `cancelled`, or the decision that it had already ended with."""
        return self._process.cancel(reason)

    async def acancel(self, reason: str | None = None) -> str:
        return await self._process.acancel(reason)

    @property
    def _process(self) -> ProcessHandle:
        return ProcessHandle(f"comms.send_{self.channel}", self.send_id, self._home)

    def _client(self) -> Client:
        return self._home.connect()

    @property
    def _home(self) -> Connects:
        if self._app is None:
            raise InvalidArgument(f"{self!r} knows no database", hint="Give app=… when it is made.")
        return self._app

    def _found(self, status: SendStatus | None) -> SendStatus:
        if status is None:
            raise TaskNotFound(
                f"there is no {self.channel} with id {self.send_id}",
                hint="If it was asked for in a transaction, commit that first.",
            )
        return status


def send_email(
    *, to: str, tx: Any = None, app: Connects | None = None, **content: Unpack[EmailContent]
) -> Sending:
    """Start to send an e-mail: with the commit of `tx`, or at once in the database of `app`."""
    statement = _email(to, content, app)
    return Sending("email", _run(statement, tx, app, "send_email"), app)


async def asend_email(
    *, to: str, tx: Any = None, app: Connects | None = None, **content: Unpack[EmailContent]
) -> Sending:
    statement = _email(to, content, app)
    return Sending("email", await _arun(statement, tx, app, "send_email"), app)


def send_sms(
    *, to: str, tx: Any = None, app: Connects | None = None, **content: Unpack[SmsContent]
) -> Sending:
    """Start to send a text message: with the commit of `tx`, or at once in the database of `app`."""
    statement = _sms(to, content, app)
    return Sending("sms", _run(statement, tx, app, "send_sms"), app)


async def asend_sms(
    *, to: str, tx: Any = None, app: Connects | None = None, **content: Unpack[SmsContent]
) -> Sending:
    statement = _sms(to, content, app)
    return Sending("sms", await _arun(statement, tx, app, "send_sms"), app)


def find_email(send_id: int, *, app: Connects) -> Sending:
    """The send of an e-mail that was asked for before, perhaps by another process."""
    return Sending("email", send_id, app)


def find_sms(send_id: int, *, app: Connects) -> Sending:
    return Sending("sms", send_id, app)


def _email(to: str, content: EmailContent, app: Connects | None) -> Statement[int]:
    made = _rendered(content, app)
    subject, text, html = made.subject or "", made.text, made.html
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
        sender=None if sender is None else str(parse_mailbox("sender", sender)),
        reply_to=None if reply_to is None else str(parse_mailbox("reply_to", reply_to)),
        headers=headers,
        **_policy(content),
    )


def _sms(to: str, content: SmsContent, app: Connects | None) -> Statement[int]:
    text, sender = _rendered(content, app).text or "", content.get("sender")
    check_number("to", to)
    check_sms_text(text)
    if sender is not None:
        check_sms_sender("sender", sender)
    return statements.send_sms(recipient=to, text_body=text, sender=sender, **_policy(content))


def _rendered(content: EmailContent | SmsContent, app: Connects | None) -> Rendered:
    """What is given itself goes before what the template has of it."""
    given = Rendered(*(cast("str | None", content.get(part)) for part in ("subject", "text", "html")))
    template = content.get("template")
    if template is None:
        if content.get("values") is not None:
            raise InvalidArgument("values are for a template, and none is given")
        return given
    directory = (app.settings if app else Settings.load()).templates
    source = load_template(template, directory) if isinstance(template, str) else template
    made = source.render(content.get("values"), directory=directory)
    return Rendered(given.subject or made.subject, given.text or made.text, given.html or made.html)


def _policy(content: EmailContent | SmsContent) -> dict[str, Any]:
    given = {
        name: content.get(name) for name in ("scheduled_at", "max_attempts", "retry_for", "when_unknown")
    }
    seconds = given["retry_for"]
    if isinstance(seconds, int | float):
        given["retry_for"] = timedelta(seconds=seconds)
    return given


def _run(statement: Statement[int], tx: Any, app: Connects | None, method: str) -> int:
    if tx is not None:
        return run_in(tx, statement, method)
    return _needed(app).connect().run(lambda engine: engine.run(statement), repeatable=False)


async def _arun(statement: Statement[int], tx: Any, app: Connects | None, method: str) -> int:
    if tx is not None:
        return await arun_in(tx, statement, method)
    return await _needed(app).connect().arun(lambda engine: engine.run(statement), repeatable=False)


def _needed(app: Connects | None) -> Connects:
    if app is None:
        raise InvalidArgument("give tx=… or app=…, so that it is known in which database to write")
    return app
