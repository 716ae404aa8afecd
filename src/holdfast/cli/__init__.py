"""The command line: one file per noun, each with a `register` that adds its commands."""

import sys
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli import postgres
from holdfast.errors import HoldfastError

COMMAND_FILES = (postgres,)

app = typer.Typer(
    name="holdfast",
    help="Durable work on Postgres.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def holdfast(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


for command_file in COMMAND_FILES:
    command_file.register(app)


def main() -> None:
    """Run the command line; what Holdfast itself reports is a message, not a traceback."""
    try:
        app()
    except HoldfastError as error:
        typer.echo(f"holdfast: {error}", err=True)
        sys.exit(error.exit_code)
