"""docs/reference/cli.md says what the command line offers."""

from collections.abc import Iterator

import click
import pytest
import typer

from holdfast.cli import app
from support.documents import REFERENCE, quoted, sections


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, f"{path} {name}")


COMMANDS = dict(_commands(typer.main.get_command(app), "holdfast"))


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    titles = {title for title in sections(REFERENCE / "cli.md") if title.split()[0] == "holdfast"}
    assert titles == COMMANDS.keys()


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_every_argument_and_option_of_a_command_is_described(path: str) -> None:
    described = quoted(sections(REFERENCE / "cli.md")[path])
    words = {word for phrase in described for word in phrase.replace(",", " ").split()}
    wanted = {name for parameter in COMMANDS[path].params for name in _names(parameter)}
    assert wanted - words == set()


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_no_section_names_an_option_that_its_command_does_not_have(path: str) -> None:
    described = {
        word
        for phrase in quoted(sections(REFERENCE / "cli.md")[path])
        for word in phrase.split()
        if word.startswith("--")
    }
    known = {name for parameter in COMMANDS[path].params for name in [*parameter.opts, *parameter.secondary_opts]}
    assert described - known - {"--help"} == set()


def _names(parameter: click.Parameter) -> list[str]:
    if isinstance(parameter, click.Argument):
        return [str(parameter.metavar or parameter.name).upper()]
    return [*parameter.opts, *parameter.secondary_opts]
