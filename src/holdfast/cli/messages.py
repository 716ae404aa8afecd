"""holdfast mailbox and messages: read the development mailbox, and erase messages to a recipient."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import typer

from holdfast._engine import Engine, Statement, messages
from holdfast._engine.messages import MailboxMessage, erase_messages
from holdfast._serialization.text import visible
from holdfast.cli.frame import add_commands, group
from holdfast.cli.output import count_of
from holdfast.cli.report import Fields, Report, listing
from holdfast.errors import NotFound

ERASE_BATCH = 1000

Channel = Annotated[Literal["email", "sms"] | None, typer.Option(help="Only this channel.")]


def register(app: typer.Typer) -> None:
    about = "Read the messages that the mailbox provider stored instead of sending."
    add_commands(group(app, "mailbox", about), list=list_messages, show=show, clear=clear)
    about = "Erase messages to a recipient."
    add_commands(group(app, "messages", about), erase=erase)


def list_messages(
    *,
    engine: Engine,
    channel: Channel = None,
    to: Annotated[
        str | None, typer.Option(metavar="RECIPIENT", help="Only messages to this recipient.")
    ] = None,
    before: Annotated[
        int | None, typer.Option(metavar="ID", help="Only messages older than this one.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of messages.")] = 50,
) -> Report:
    """List the messages in the mailbox, newest first."""
    return listing(
        "messages",
        engine.run(messages.list_mailbox(channel=channel, recipient=to, before=before, limit=limit)),
        "id kept_at channel recipient subject text",
        id=lambda message: message.mailbox_message_id,
        text=_first_line,
    )


def show(
    engine: Engine,
    message_id: Annotated[int, typer.Argument(metavar="ID", help="Id of the message.")],
    *,
    html: Annotated[bool, typer.Option("--html", help="Print only the HTML.")] = False,
) -> Report:
    """Show a message as the recipient would receive it."""
    message = engine.run(messages.mailbox_message(message_id))
    if message is None or (html and message.html_body is None):
        what = "message" if message is None else "HTML in message"
        raise NotFound(f"the mailbox has no {what} {message_id}", hint="List messages: holdfast mailbox list")
    return Report(message, message.html_body if html else _shown(message))


def clear(engine: Engine) -> Report:
    """Delete all messages in the mailbox."""
    removed = _sum_of(engine, messages.clear_mailbox)
    return Report({"removed": removed}, f"Removed {count_of(removed, 'message')}.")


def erase(
    engine: Engine,
    recipient: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="E-mail address or telephone number of the recipient.")
    ],
    reason: Annotated[
        str, typer.Option(help="Reason, recorded together with your login. Do not include the address.")
    ],
) -> Report:
    """Erase the address and content of all messages to a recipient. Their history remains without both."""
    erased = _sum_of(engine, lambda: erase_messages(recipient, reason, ERASE_BATCH))
    return Report({"erased": erased}, f"Erased {count_of(erased, 'message')}.")


def _sum_of(engine: Engine, step: Callable[[], Statement[int]]) -> int:
    """Repeat a step until it finds nothing to do."""
    return sum(iter(lambda: engine.run(step()), 0))


def _first_line(message: MailboxMessage) -> str:
    lines = (message.text_body or "").strip().splitlines()
    return lines[0][:60] if lines else ""


def _shown(message: MailboxMessage) -> Iterator[Any]:
    fields = {
        "channel": message.channel,
        "kept_at": message.kept_at,
        "from": message.sender,
        "to": message.recipient,
        "reply_to": message.reply_to,
        "subject": message.subject,
        **(message.headers or {}),
    }
    yield Fields((name, value) for name, value in fields.items() if value is not None)
    if message.text_body is not None:
        yield f"\n{visible(message.text_body)}"
    if message.html_body is not None:
        yield (
            f"\nHTML of {len(message.html_body)} characters: holdfast mailbox show"
            f" {message.mailbox_message_id} --html"
        )
