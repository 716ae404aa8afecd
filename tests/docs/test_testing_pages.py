"""The page about the pytest plugin names all there is."""

import dataclasses
from typing import Any

import holdfast.testing
from holdfast.testing import Clock, Ran, Sandbox
from support.documents import DOCS, rows, sections

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
