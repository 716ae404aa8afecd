"""The pages about the pytest plugin: one runs as printed, the other names all there is."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import holdfast.testing
from holdfast.postgres import EmbeddedServer
from holdfast.testing import Clock, Ran, Sandbox
from support.documents import DOCS, code, rows, sections

PAGE = sections(DOCS / "reference" / "testing.md")


def described(title: str) -> set[str]:
    return {name for row in rows(PAGE[title]) for name in row[0].split(", ")}


def members(kind: type[Any]) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_every_fixture_is_described() -> None:
    assert described("Fixtures") == {name for name in holdfast.testing.__all__ if name.islower()}


def test_every_member_of_a_sandbox_is_described() -> None:
    assert described("Sandbox") == members(Sandbox) | {"dsn"}


def test_every_member_of_a_clock_is_described() -> None:
    assert described("Clock") == members(Clock)


def test_every_field_of_what_ran_is_described() -> None:
    assert described("Ran") == {field.name for field in dataclasses.fields(Ran)}


@pytest.mark.full
def test_the_project_on_the_page_runs_as_printed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, server: EmbeddedServer
) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_DATABASE_URL", server.url("postgres"))
    blocks = code((DOCS / "howto" / "test-your-tasks.md").read_text(), "python")
    for block in blocks:
        name = block.splitlines()[0].removeprefix("# ")
        with Path(name).open("a") as file:
            file.write(f"{block}\n")
    pytester.makeini("[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n")
    tests = sum(line.startswith(("def test_", "async def test_")) for line in "".join(blocks).splitlines())
    pytester.runpytest_subprocess().assert_outcomes(passed=tests)
