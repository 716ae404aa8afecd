"""holdfast mailbox: what the provider of that name has kept instead of sending it."""

from typing import Annotated, Literal

import typer

from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, print_fields, print_json, print_table
from holdfast.engine import messages
from holdfast.engine.messages import MailboxMessage
from holdfast.errors import TaskNotFound
from holdfast.serialization.text import visible

commands = typer.Typer(help="Messages that were kept instead of sent.", no_args_is_help=True)

Channel = Annotated[Literal["email", "sms"] | None, typer.Option(help="Only this channel.")]


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="mailbox")


@commands.command("list")
def list_messages(
    *,
    channel: Channel = None,
    to: Annotated[str | None, typer.Option(metavar="RECIPIENT", help="Only to this recipient.")] = None,
    before: Annotated[int | None, typer.Option(metavar="ID", help="Only those older than this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
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
                (m.mailbox_message_id, m.kept_at, m.channel, m.recipient, m.subject, _beginning(m))
                for m in found
            ],
        )
    else:
        typer.echo("The mailbox has no such message.", err=True)


@commands.command()
def show(
    message_id: Annotated[int, typer.Argument(metavar="ID")],
    html: Annotated[bool, typer.Option("--html", help="Print the HTML and nothing else.")] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Show one message as the recipient would get it."""
    with connected(database_url) as engine:
        message = engine.run(messages.mailbox_message(message_id))
    if message is None or (html and message.html_body is None):
        what = "message" if message is None else "HTML in message"
        raise TaskNotFound(f"the mailbox has no {what} {message_id}", hint="See holdfast mailbox list.")
    if as_json:
        print_json(message)
    elif html:
        typer.echo(message.html_body)
    else:
        _print_message(message)


@commands.command()
def clear(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Remove all messages from the mailbox."""
    removed = 0
    with connected(database_url) as engine:
        while some := engine.run(messages.clear_mailbox()):
            removed += some
    if as_json:
        print_json({"removed": removed})
    else:
        typer.echo(f"Removed {removed} messages" if removed != 1 else "Removed 1 message")


def _beginning(message: MailboxMessage) -> str:
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
