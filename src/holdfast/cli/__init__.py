"""The command line: one file per noun, each with a `register` that adds its commands."""

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
    mailbox,
    messages,
    migrate,
    namespaces,
    postgres,
    processes,
    queues,
    replay,
    retention,
    retry,
    schedules,
    serve,
    show,
    task_actions,
    task_types,
    tasks,
    tokens,
    top,
    up,
    worker,
    workers,
)
from holdfast.cli.output import complain
from holdfast.errors import HoldfastError

COMMAND_FILES = (
    up,
    enqueue,
    worker,
    serve,
    tokens,
    namespaces,
    task_types,
    show,
    tasks,
    task_actions,
    replay,
    retry,
    queues,
    schedules,
    limits,
    workers,
    retention,
    mailbox,
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
    "Exit codes: 0 done · 1 refused, such as a key in use or a task that has ended · 2 bad usage or input · "
    "3 not running (postgres status) or not possible (migrate) · 4 not found · "
    "5 the database cannot be reached · 6 run holdfast migrate first · 7 the login may not do this · "
    "75 lost a race, try again"
)


class Commands(TyperGroup):
    """What Holdfast itself reports is a message and an exit code, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            complain(error)
            raise typer.Exit(error.exit_code) from error


app = typer.Typer(
    name="holdfast",
    cls=Commands,
    help="Durable work on Postgres.",
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


for command_file in COMMAND_FILES:
    command_file.register(app)


def main() -> None:
    """Run the command line, also where the locale cannot write what a payload holds."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    # A shell script starts background commands with SIGINT ignored, and Python then leaves it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    app()
