"""The frame that gives each command its connection, its options and its output."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from holdfast._engine import Engine, health
from holdfast.cli.frame import add_commands, confirm
from holdfast.cli.report import Note, Report, listing, table
from support.commands import app, run
from support.database import Database

NOWHERE = "postgresql://nobody@nowhere.invalid/at_all"
WITHOUT_JSON = {"dev", "up", "worker", "serve", "dispatch", "mcp", "skill"}
"""They run until they are stopped, or print a page."""


@dataclass(frozen=True)
class Colours:
    inside: Annotated[str, typer.Option("--inside")] = "red"
    outside: Annotated[str | None, typer.Option()] = None


def invoke(function: Any, *arguments: str, url: str = NOWHERE) -> Result:
    commands = typer.Typer()
    commands.callback()(lambda: None)
    add_commands(commands, it=function)
    return CliRunner().invoke(commands, ["it", *arguments], env={"DATABASE_URL": url})


def commands_below(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands_below(child, f"{path} {name}".strip())


def test_a_report_is_one_document_or_text_and_ends_with_its_code() -> None:
    def answer() -> Report:
        return Report({"a": 1}, "one", Note("look"), exit_code=3)

    for_people, for_programs = invoke(answer), invoke(answer, "--json")
    assert (for_people.stdout, for_people.stderr, for_people.exit_code) == ("one\n", "look\n", 3)
    assert (json.loads(for_programs.stdout), for_programs.stderr, for_programs.exit_code) == ({"a": 1}, "", 3)


def test_a_dataclass_stands_for_options() -> None:
    def paint(colours: Colours) -> Report:
        return Report({}, f"{colours.inside} {colours.outside}")

    assert invoke(paint).stdout == "red None\n"
    assert invoke(paint, "--inside", "blue", "--outside", "green").stdout == "blue green\n"


def test_an_engine_connects_at_its_first_statement(db: Database) -> None:
    def ask(engine: Engine, refused: bool = False) -> Report:
        if refused:
            raise typer.BadParameter("not like this")
        engine.run(health.clock())
        return Report({}, "asked")

    assert invoke(ask, "--refused").exit_code == 2
    assert invoke(ask).stdout == ""
    assert invoke(ask, url=db.dsn).stdout == "asked\n"
    assert invoke(ask, "--database-url", db.dsn).stdout == "asked\n"


def test_only_what_is_printed_is_made() -> None:
    def fail() -> Any:
        raise AssertionError

    def parts() -> Iterator[str]:
        yield fail()

    def answer() -> Report:
        return Report({"a": 1}, parts())

    def show() -> Report:
        return Report(fail, "text")

    assert json.loads(invoke(answer, "--json").stdout) == {"a": 1}
    assert invoke(show).stdout == "text\n"


def test_a_list_without_rows_is_an_empty_array_and_a_note() -> None:
    def answer() -> Report:
        return listing("cats", [], "name")

    assert invoke(answer).stderr == "No cats found.\n"
    assert json.loads(invoke(answer, "--json").stdout) == {"cats": []}


def test_a_table_shows_attributes_or_what_a_keyword_makes_of_a_row() -> None:
    def answer() -> Report:
        return Report({}, table([Colours()], "inside outside size", size=lambda one: len(one.inside)))

    assert invoke(answer).stdout == "inside  size\nred     3\n"


@pytest.mark.parametrize(("answer", "arguments", "code"), [("y", [], 0), ("n", [], 1), ("", ["--yes"], 0)])
def test_a_change_is_confirmed_by_a_person_or_by_an_option(
    answer: str, arguments: list[str], code: int
) -> None:
    def clear(*, yes: bool = False) -> Report:
        confirm("Clear?", yes=yes)
        return Report({}, "cleared")

    commands = typer.Typer()
    add_commands(commands, clear)
    cleared = CliRunner().invoke(commands, arguments, input=answer)
    assert (cleared.exit_code, "cleared" in cleared.stdout) == (code, code == 0)


def test_every_command_that_answers_has_json() -> None:
    leaves = dict(commands_below(typer.main.get_command(app)))
    without = {
        path for path, one in leaves.items() if "--json" not in {o for p in one.params for o in p.opts}
    }
    assert without | {"skill"} == WITHOUT_JSON


def test_arguments_are_checked_before_a_connection_is_opened() -> None:
    refused = run("retry", "--status", "nonsense", url=NOWHERE)
    assert (refused.exit_code, "nonsense" in refused.stderr) == (2, True)
