"""holdfast command: list and check the external programs that run tasks."""

import asyncio
import shlex
from typing import Annotated, Any

import typer

from holdfast.cli.arguments import document
from holdfast.cli.frame import add_commands, group
from holdfast.cli.report import Note, Report, Table
from holdfast.errors import ConfigurationError, did_you_mean
from holdfast.resources import size_text
from holdfast.settings import Settings
from holdfast.settings.commands import Command


def register(app: typer.Typer) -> None:
    programs = group(app, "command", "List and check the external programs that run tasks.")
    add_commands(programs, list=list_commands, check=check)


def list_commands() -> Report:
    """List the configured commands and their programs."""
    from holdfast.isolation.command_run import find_program  # noqa: PLC0415 - other commands start faster

    commands = Settings.load().commands
    programs = {name: find_program(one.argv[0], one.directory) for name, one in commands.items()}
    document = {
        name: {**one.model_dump(mode="json"), "program": programs[name]} for name, one in commands.items()
    }
    if not commands:
        return Report(document, Note("No commands found in [tool.holdfast.commands] of pyproject.toml."))
    rows = [
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
    ]
    return Report(document, Table(["name", "types", "argv", "program", "timeout", "limits", "user"], rows))


def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a configured command.")],
    *,
    payload: Annotated[
        Any,
        typer.Option(
            parser=document, metavar="JSON", help="A valid payload: JSON, @file, or - for standard input."
        ),
    ] = "{}",
) -> Report:
    """Run a command a few times and check that it follows the protocol. The exit code is 1 if not."""
    settings = Settings.load()
    command = settings.commands.get(name)
    if command is None:
        raise ConfigurationError(
            f"there is no command {name!r} in [tool.holdfast.commands]{did_you_mean(name, settings.commands)}"
        )
    findings = asyncio.run(_check(name, command, settings, str(payload)))
    rows = [("ok" if finding.holds else "FAILED", finding.name, finding.seen) for finding in findings]
    holds = all(finding.holds for finding in findings)
    return Report(findings, Table(["", "check", "observed"], rows), exit_code=0 if holds else 1)


async def _check(name: str, command: Command, settings: Settings, payload: str) -> list[Any]:
    from holdfast.isolation.command import bounds_of, plan_of  # noqa: PLC0415 - as above
    from holdfast.isolation.command_check import check_command  # noqa: PLC0415 - as above

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
