"""Builds the command line, runs it, and reports errors with an exit code."""

import re
import signal
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from holdfast import __version__
from holdfast.errors import HoldfastError, close_to

COMMANDS = {
    "Run": ("dev", "up", "worker", "serve", "dispatch", "mcp"),
    "Tasks": (
        "enqueue",
        "tasks",
        "task_actions",
        "error_groups",
        "replay",
        "runs",
        "schedules",
        "task_types",
    ),
    "Operate": (
        "health",
        "queues",
        "workers",
        "limits",
        "retention",
        "events",
        "processes",
        "messages",
    ),
    "Set up": ("migrate", "grant", "tokens", "namespaces", "shards", "postgres", "commands", "skill"),
}
"""The modules of the commands, by the headings under which `holdfast --help` lists them."""

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
            from holdfast.cli.output import print_error  # noqa: PLC0415 - loads Rich

            print_error(error)
            raise typer.Exit(error.exit_code) from error


def _with_suggestion(message: str) -> str:
    """The message about a value that is not one of several, with the closest of them."""
    message = message.removeprefix("Value error, ")
    given, found, allowed = message.partition(" is not one of ")
    close = close_to(given.strip("'"), re.findall(r"'([^']*)'", allowed)) if found else None
    return message if close is None else f"{message} Did you mean {close!r}?"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


def holdfast(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def build_app(commands: Mapping[str, Iterable[str]] = COMMANDS) -> typer.Typer:
    """The command line with the commands of these modules, by their headings."""
    app = typer.Typer(
        name="holdfast",
        cls=HoldfastGroup,
        help="Durable tasks and workflows on Postgres.",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(holdfast)
    for heading, modules in commands.items():
        for name in modules:
            import_module(f"holdfast.cli.{name}").register(app)
        listed: list[Any] = [*app.registered_commands, *app.registered_groups]
        for one in listed:
            one.rich_help_panel = one.rich_help_panel or heading
    return app


def app_for(arguments: list[str]) -> typer.Typer:
    """A worker runs for months: modules of other commands would stay in its memory."""
    return build_app({"Run": ["worker"]} if arguments[:1] == ["worker"] else COMMANDS)


def main() -> None:
    run_command(sys.argv[1:], None)


def run_command(arguments: list[str], program: str | None) -> None:
    """Run the command line and exit. Characters that the locale cannot print are escaped."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    # Shell scripts start background commands with SIGINT ignored, and Python would keep it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    app_for(arguments)(arguments, prog_name=program)
