"""docs/reference/cli.md and errors.md say what the command line offers and how it ends."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.core import TyperArgument

from holdfast import errors
from holdfast.cli.postgres import NOT_RUNNING
from support.commands import app
from support.documents import REFERENCE, quoted, rows, sections


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, f"{path} {name}")


COMMANDS = dict(_commands(typer.main.get_command(app), "holdfast"))


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    titles = {title for title in sections(REFERENCE / "cli.md") if title.split()[0] == "holdfast"}
    assert titles == COMMANDS.keys()


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_the_arguments_and_options_of_a_command_are_those_described(path: str) -> None:
    described = {
        phrase.split()[0] for cells in _table(path) for phrase in cells[0].split(", ") if phrase.strip()
    }
    real = {name for parameter in COMMANDS[path].params for name in _names(parameter)}
    assert described - {"--help", "-h"} == real


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_every_argument_and_option_has_a_meaning(path: str) -> None:
    assert all(meaning for _, meaning in _table(path))


def test_every_exit_code_is_described() -> None:
    described = {int(code) for code, _ in rows(sections(REFERENCE / "cli.md")["Exit codes"])}
    assert described == {0, NOT_RUNNING} | {kind.exit_code for kind in _family(errors.HoldfastError)}


def test_every_code_of_the_engine_names_its_exception() -> None:
    for title, text in sections(REFERENCE / "errors.md").items():
        if title.startswith("QF"):
            assert errors.BY_SQLSTATE[title.split(":")[0]].__name__ in quoted(text), title


def test_every_exception_is_described() -> None:
    described = {cells[0] for cells in rows(sections(REFERENCE / "errors.md")["Exceptions"])}
    assert described == {kind.__name__ for kind in _family(errors.HoldfastError)}


def _table(path: str) -> list[list[str]]:
    return rows(sections(REFERENCE / "cli.md")[path])


def _names(parameter: Any) -> list[str]:
    if isinstance(parameter, TyperArgument):
        return [str(parameter.metavar or parameter.name)]
    return [*parameter.opts, *parameter.secondary_opts]


def _family(kind: type[errors.HoldfastError]) -> Iterator[type[errors.HoldfastError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)
