"""holdfast command: list and check the external programs that run tasks."""

import asyncio
import shlex
from dataclasses import asdict
from typing import Annotated, Any

import typer

from holdfast.cli.arguments import document
from holdfast.cli.output import Json, print_json, print_table
from holdfast.errors import ConfigurationError, did_you_mean
from holdfast.resources import size_text
from holdfast.settings import Settings
from holdfast.settings.commands import Command

command_app = typer.Typer(help="List and check the external programs that run tasks.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(command_app, name="command")


@command_app.command("list")
def list_commands(as_json: Json = False) -> None:
    """List the configured commands and their programs."""
    from holdfast.executors.command_run import find_program  # noqa: PLC0415 - other commands start faster

    commands = Settings.load().commands
    programs = {name: find_program(one.argv[0], one.directory) for name, one in commands.items()}
    if as_json:
        print_json(
            {
                name: {**one.model_dump(mode="json"), "program": programs[name]}
                for name, one in commands.items()
            }
        )
        return
    if not commands:
        typer.echo("No commands found in [tool.holdfast.commands] of pyproject.toml.", err=True)
        return
    print_table(
        ["name", "types", "argv", "program", "timeout", "limits", "user"],
        [
            (
                name,
                ", ".join(one.types),
                shlex.join(one.argv),
                programs[name] or "not found",
                None if one.timeout is None else f"{one.timeout.total_seconds():g}s",
                _limits_text(one),
                one.user,
            )
            for name, one in commands.items()
        ],
    )


@command_app.command("check")
def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a configured command.")],
    *,
    payload: Annotated[
        Any,
        typer.Option(
            parser=document, metavar="JSON", help="A valid payload: JSON, @file, or - for standard input."
        ),
    ] = "{}",
    as_json: Json = False,
) -> None:
    """Run a command a few times and check that it follows the protocol. The exit code is 1 if not."""
    settings = Settings.load()
    command = settings.commands.get(name)
    if command is None:
        raise ConfigurationError(
            f"there is no command {name!r} in [tool.holdfast.commands]{did_you_mean(name, settings.commands)}"
        )
    findings = asyncio.run(_check(name, command, settings, str(payload)))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        print_table(
            ["", "check", "observed"],
            [("ok" if finding.holds else "FAILED", finding.name, finding.seen) for finding in findings],
        )
    if not all(finding.holds for finding in findings):
        raise typer.Exit(1)


async def _check(name: str, command: Command, settings: Settings, payload: str) -> list[Any]:
    from holdfast.executors.command import bounds_of, plan_of  # noqa: PLC0415 - as above
    from holdfast.executors.command_check import check_command  # noqa: PLC0415 - as above

    variables = {
        "HOLDFAST_TASK_ID": "00000000-0000-0000-0000-000000000000",
        "HOLDFAST_TASK_TYPE": command.types[0],
        "HOLDFAST_ATTEMPT": "1",
        "HOLDFAST_MAX_ATTEMPTS": "1",
    }
    bounds = bounds_of(command, settings, None, None)
    return [one async for one in check_command(plan_of(name, command, **variables), bounds, payload)]


def _limits_text(command: Command) -> str:
    sizes = ("memory", "file_size")
    given = command.resources.as_message()
    return ", ".join(
        f"{name} {size_text(int(value)) if name in sizes else value:}" for name, value in given.items()
    )
