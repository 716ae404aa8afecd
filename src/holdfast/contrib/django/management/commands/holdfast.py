"""manage.py holdfast: the whole command line of Holdfast, with Django set up."""

import argparse
import sys
from typing import Any

import typer
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand

from holdfast.cli import command_line
from holdfast.contrib.django.conf import read_conf

INVALID_INPUT = 2


class Command(BaseCommand):
    help = "Runs a command of Holdfast for the database of this project: worker, migrate, list, show, …"
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass everything on. Django's own options of every command have taken effect already."""
        try:
            self._run(_without_django_options(argv[2:]), f"{argv[0]} {argv[1]}")
        except ImproperlyConfigured as error:
            self.stderr.write(f"holdfast: {error}")
            sys.exit(INVALID_INPUT)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def handle(self, *args: Any, arguments: list[str], **options: Any) -> None:
        """For call_command("holdfast", "list")."""
        del args, options
        self._run(arguments, "manage.py holdfast")

    def _run(self, arguments: list[str], program: str) -> None:
        command_line.run_command(with_application(arguments, read_conf().app), program)


def with_application(arguments: list[str], application: str) -> list[str]:
    """The arguments with MODULE:APP, if the command takes one and none is given."""
    command: Any = typer.main.get_command(command_line.app_for(arguments))
    path: list[str] = []
    while hasattr(command, "commands") and len(path) < len(arguments):
        path.append(arguments[len(path)])
        command = command.commands.get(path[-1])
    rest = arguments[len(path) :]
    if command is None or all(one.name != "application" for one in command.params):
        return arguments
    try:
        parsed = command.make_context(path[-1], list(rest), resilient_parsing=True)
    except Exception:  # noqa: BLE001 - the command itself reports it
        return arguments
    return arguments if parsed.params.get("application") else [*path, application, *rest]


def _without_django_options(arguments: list[str]) -> list[str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--settings")
    parser.add_argument("--pythonpath")
    return parser.parse_known_args(arguments)[1]
