"""The command line. Each module has a `register` function that adds its commands."""

import re
import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from holdfast import __version__
from holdfast.cli import (
    commands,
    dispatch,
    enqueue,
    events,
    health,
    limits,
    messages,
    migrate,
    namespaces,
    postgres,
    processes,
    queues,
    replay,
    retention,
    schedules,
    serve,
    task_actions,
    task_types,
    tasks,
    tokens,
    top,
    up,
    workers,
)
from holdfast.cli.output import print_error
from holdfast.errors import HoldfastError, close_to

COMMAND_MODULES = (
    up,
    enqueue,
    workers,
    serve,
    tokens,
    namespaces,
    task_types,
    tasks,
    task_actions,
    replay,
    queues,
    schedules,
    limits,
    retention,
    messages,
    events,
    dispatch,
    commands,
    health,
    processes,
    top,
    migrate,
    postgres,
)

EXIT_CODES = (
    "Exit codes: 0 success · 1 refused, such as a key in use or a task that has ended · 2 invalid input · "
    "3 not running (postgres status) or migration refused · 4 not found · "
    "5 cannot connect to the database · 6 run holdfast migrate first · 7 permission denied · "
    "75 conflict with another transaction, try again"
)


class HoldfastGroup(TyperGroup):
    """Reports errors of Holdfast with a message and an exit code instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _with_suggestion(error.message)
            raise
        except HoldfastError as error:
            print_error(error)
            raise typer.Exit(error.exit_code) from error


def _with_suggestion(message: str) -> str:
    """The message about a value that is not one of several, with the closest of them."""
    message = message.removeprefix("Value error, ")
    given, found, allowed = message.partition(" is not one of ")
    close = close_to(given.strip("'"), re.findall(r"'([^']*)'", allowed)) if found else None
    return message if close is None else f"{message} Did you mean {close!r}?"


app = typer.Typer(
    name="holdfast",
    cls=HoldfastGroup,
    help="Durable tasks and workflows on Postgres.",
    epilog=EXIT_CODES,
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


for command_module in COMMAND_MODULES:
    command_module.register(app)


def main() -> None:
    """Run the command line. Characters that the locale cannot print are escaped."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    # Shell scripts start background commands with SIGINT ignored, and Python would keep it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    app()
