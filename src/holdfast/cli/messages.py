"""holdfast mailbox and messages: read the development mailbox, and erase messages to a recipient."""

from typing import Annotated, Literal

import typer

from holdfast.cli.connection import DatabaseUrl, connected
from holdfast.cli.output import Json, count_of, print_fields, print_json, print_table
from holdfast.engine import messages
from holdfast.engine.messages import MailboxMessage, erase_messages
from holdfast.errors import TaskNotFound
from holdfast.serialization.text import visible

mailbox_commands = typer.Typer(
    help="Read the messages that the mailbox provider stored instead of sending.", no_args_is_help=True
)
message_commands = typer.Typer(help="Erase messages to a recipient.", no_args_is_help=True)

ERASE_BATCH = 1000

Channel = Annotated[Literal["email", "sms"] | None, typer.Option(help="Only this channel.")]


def register(app: typer.Typer) -> None:
    app.add_typer(mailbox_commands, name="mailbox")
    app.add_typer(message_commands, name="messages")


@mailbox_commands.command("list")
def list_messages(
    *,
    channel: Channel = None,
    to: Annotated[
        str | None, typer.Option(metavar="RECIPIENT", help="Only messages to this recipient.")
    ] = None,
    before: Annotated[
        int | None, typer.Option(metavar="ID", help="Only messages older than this one.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of messages.")] = 50,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """List the messages in the mailbox, newest first."""
    with connected(database_url) as engine:
        found = engine.run(messages.list_mailbox(channel=channel, recipient=to, before=before, limit=limit))
    if as_json:
        print_json({"messages": found})
    elif found:
        print_table(
            ["id", "kept_at", "channel", "recipient", "subject", "text"],
            [
                (m.mailbox_message_id, m.kept_at, m.channel, m.recipient, m.subject, _first_line(m))
                for m in found
            ],
        )
    else:
        typer.echo("No messages found.", err=True)


@mailbox_commands.command()
def show(
    message_id: Annotated[int, typer.Argument(metavar="ID", help="Id of the message.")],
    html: Annotated[bool, typer.Option("--html", help="Print only the HTML.")] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Show a message as the recipient would receive it."""
    with connected(database_url) as engine:
        message = engine.run(messages.mailbox_message(message_id))
    if message is None or (html and message.html_body is None):
        what = "message" if message is None else "HTML in message"
        raise TaskNotFound(
            f"the mailbox has no {what} {message_id}", hint="List messages: holdfast mailbox list"
        )
    if as_json:
        print_json(message)
    elif html:
        typer.echo(message.html_body)
    else:
        _print_message(message)


@mailbox_commands.command()
def clear(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Delete all messages in the mailbox."""
    removed = 0
    with connected(database_url) as engine:
        while some := engine.run(messages.clear_mailbox()):
            removed += some
    if as_json:
        print_json({"removed": removed})
    else:
        typer.echo(f"Removed {count_of(removed, 'message')}.")


@message_commands.callback()
def message_group() -> None:
    """Erase messages to a recipient."""


@message_commands.command()
def erase(
    recipient: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="E-mail address or telephone number of the recipient.")
    ],
    reason: Annotated[
        str, typer.Option(help="Reason, recorded together with your login. Do not include the address.")
    ],
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Erase the address and content of all messages to a recipient. Their history remains without both."""
    erased = 0
    with connected(database_url) as engine:
        while some := engine.run(erase_messages(recipient, reason, ERASE_BATCH)):
            erased += some
    if as_json:
        print_json({"erased": erased})
    else:
        typer.echo(f"Erased {count_of(erased, 'message')}.")


def _first_line(message: MailboxMessage) -> str:
    lines = (message.text_body or "").strip().splitlines()
    return lines[0][:60] if lines else ""


def _print_message(message: MailboxMessage) -> None:
    fields = {
        "channel": message.channel,
        "kept_at": message.kept_at,
        "from": message.sender,
        "to": message.recipient,
        "reply_to": message.reply_to,
        "subject": message.subject,
        **(message.headers or {}),
    }
    print_fields((name, value) for name, value in fields.items() if value is not None)
    if message.text_body is not None:
        typer.echo(f"\n{visible(message.text_body)}")
    if message.html_body is not None:
        typer.echo(
            f"\nHTML of {len(message.html_body)} characters: holdfast mailbox show"
            f" {message.mailbox_message_id} --html"
        )
