"""Prints results: tables for people, one JSON document for programs."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import typer
from rich.console import Console
from rich.text import Text

from holdfast._serialization.text import visible
from holdfast.errors import HoldfastError, close_to

MAX_KNOWN = 10

_COLOURS = {
    "scheduled": "cyan",
    "pending": "cyan",
    "retrying": "yellow",
    "claimed": "blue",
    "running": "blue",
    "succeeded": "green",
    "failed": "red",
    "dead_letter": "red",
    "cancelled": "magenta",
}


def print_json(value: Any) -> None:
    # ASCII only, so that the output does not depend on the locale or the terminal.
    typer.echo(json.dumps(value, default=json_value, indent=2))


def json_value(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone().isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID() | Path():
            return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(type(value).__name__)


def describe_error(error: HoldfastError) -> dict[str, str | None]:
    return {"kind": type(error).__name__, "sqlstate": error.sqlstate, "message": str(error)}


def print_error(error: HoldfastError) -> None:
    typer.echo(f"holdfast: {visible(str(error))}", err=True)


def cell_text(value: Any) -> str:
    """The text of a value in a table."""
    match value:
        case None:
            return ""
        case datetime():
            return value.astimezone().isoformat(sep=" ", timespec="seconds")
        case bool():
            return "yes" if value else "no"
        case str():
            return visible(value)
        case dict() | list():
            return visible(json.dumps(value, ensure_ascii=False))
    return str(value)


def pretty(value: Any) -> str:
    return visible(json.dumps(value, ensure_ascii=False, indent=2))


def status_text(status: str, deleted: object = None) -> Text:
    text = Text(status, style=_COLOURS.get(status, ""))
    return text.append(" (deleted)", style="dim") if deleted else text


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
    """Print one line per row, never wrapped, so that it can be searched and copied. Omit empty columns."""
    print_lines(table_lines(columns, rows), title)


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[Text]:
    """The lines that `print_table` prints, starting with the header."""
    lines = [[_cell(value) for value in row] for row in rows]
    filled = [n for n in range(len(columns)) if any(line[n].plain for line in lines)]
    header = [Text(columns[n], style="bold") for n in filled]
    return _aligned([header, *([line[n] for n in filled] for line in lines)])


def print_fields(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print one name and value per line."""
    print_lines(_aligned([[Text(name, style="bold"), _cell(value)] for name, value in pairs]))


def _cell(value: Any) -> Text:
    return (
        value if isinstance(value, Text) else Text(cell_text(value).replace("\n", "\\n").replace("\t", "\\t"))
    )


def print_lines(lines: Iterable[Text], title: str = "") -> None:
    console = Console(markup=False, emoji=False, highlight=False)
    if title:
        console.print(f"\n{title}")
    for line in lines:
        console.print(line, soft_wrap=True)


def _aligned(lines: Sequence[Sequence[Text]]) -> list[Text]:
    widths = [max(cell.cell_len for cell in column) for column in zip(*lines, strict=True)]
    aligned = [
        Text("  ").join(_padded(cell, width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    for line in aligned:
        line.rstrip()
    return aligned


def _padded(cell: Text, width: int) -> Text:
    return cell + " " * (width - cell.cell_len)


def count_of(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def warn_of_unknown(kind: str, name: str, known: Sequence[str]) -> None:
    """Warn about the name of a queue or type that does not exist yet: it may be a mistake, or come later."""
    if name in known:
        return
    close = close_to(name, known)
    if close is not None:
        hint = f"Did you mean {visible(close)}?"
    elif known:
        more = f" and {len(known) - MAX_KNOWN} more" if len(known) > MAX_KNOWN else ""
        hint = f"There are: {', '.join(visible(one) for one in known[:MAX_KNOWN])}{more}."
    else:
        hint = f"There is no {kind} yet."
    typer.echo(f"Warning: the {kind} {visible(name)} is not known. {hint}", err=True)
