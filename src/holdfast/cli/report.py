"""What a command answers: one JSON document for programs, and text and tables for people."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import typer
from rich.text import Text

from holdfast._serialization.text import visible
from holdfast.cli.output import print_fields, print_json, print_lines, print_table


@dataclass(frozen=True, slots=True)
class Note:
    """A line for people that is no result. It goes to standard error."""

    text: str

    def print(self) -> None:
        typer.echo(self.text, err=True)


@dataclass(frozen=True, slots=True)
class Table:
    """One line per row, below the names of the columns. Empty columns are omitted."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]
    title: str = ""

    def under(self, title: str) -> "Table":
        return replace(self, title=title)

    def print(self) -> None:
        print_table(self.columns, self.rows, self.title)


@dataclass(frozen=True, slots=True)
class Fields:
    """One name and value per line."""

    pairs: Iterable[tuple[str, Any]]

    def print(self) -> None:
        print_fields(self.pairs)


@dataclass(frozen=True, slots=True)
class Lines:
    """Styled lines, never wrapped."""

    lines: Iterable[Text]

    def print(self) -> None:
        print_lines(self.lines)


class Report:
    """The answer of a command: a document, what people see instead, and the exit code."""

    def __init__(self, document: Any, *shown: Any, exit_code: int = 0) -> None:
        """The document may be a function that makes it, and a part of `shown` a generator of parts.

        Only what is printed is made.
        """
        self.document = document
        self.shown = shown
        self.exit_code = exit_code

    def print(self, *, as_json: bool) -> None:
        if as_json:
            print_json(self.document() if callable(self.document) else self.document)
        else:
            _print_all(self.shown)
        if self.exit_code:
            raise typer.Exit(self.exit_code)


def _print_all(parts: Iterable[Any]) -> None:
    for part in parts:
        if isinstance(part, Note | Table | Fields | Lines):
            part.print()
        elif isinstance(part, Text):
            print_lines([part])
        elif isinstance(part, Iterator):
            _print_all(part)
        else:
            typer.echo(part)


def table(rows: Iterable[Any], columns: str, **texts: Callable[[Any], Any]) -> Table:
    """The attributes of each row that `columns` names. A keyword replaces what a column shows."""
    names = columns.split()
    shown = [texts.get(name) or attrgetter(name) for name in names]
    return Table(names, ([text(row) for text in shown] for row in rows))


def listing(
    noun: str, rows: Sequence[Any], columns: str, *, none: str = "", **texts: Callable[[Any], Any]
) -> Report:
    """The report of a command that lists rows: a document with one array, or a table, or a note without."""
    empty = Note(none or f"No {noun} found.")
    return Report({noun: rows}, table(rows, columns, **texts) if rows else empty)


def change(changed: bool, done: str, otherwise: str, **document: Any) -> Report:
    """The report of a command that may find nothing to change."""
    return Report({**document, "changed": changed}, done if changed else otherwise)


def pause_change(noun: str, name: str, *, paused: bool, changed: bool, key: str = "name") -> Report:
    """The report of a command that pauses or resumes something."""
    verb, state = "is" if changed else "was already", "paused" if paused else "running"
    text = f"{noun.capitalize()} {visible(name)} {verb} {state}."
    return Report({key: name, "paused": paused, "changed": changed}, text)
