"""holdfast messages: what was written to people, and its removal."""

from typing import Annotated

import typer

from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json
from holdfast.engine.messages import erase_messages

BATCH = 1000

commands = typer.Typer(help="Remove what was written to a recipient.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="messages")


@commands.callback()
def messages() -> None:
    """Remove what was written to a recipient."""


@commands.command()
def erase(
    recipient: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="An e-mail address, or a number: +49….")
    ],
    reason: Annotated[
        str, typer.Option(help="Why; it is recorded with your login. Do not repeat the address.")
    ],
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Erase address and content of all messages to a recipient. What happened to them stays, without both."""
    erased = 0
    with connected(database_url) as engine:
        while some := engine.run(erase_messages(recipient, reason, BATCH)):
            erased += some
    if as_json:
        print_json({"erased": erased})
    else:
        typer.echo(f"Erased {erased} messages" if erased != 1 else "Erased 1 message")
