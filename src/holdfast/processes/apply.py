"""Apply the SQL files of a process, in one transaction, and remember which."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg

from holdfast.engine import Engine, processes
from holdfast.errors import ConfigurationError, DatabaseUnavailable, NotInstalled, TryAgain, translate

Change = Literal["new", "changed", "unchanged", "removed"]


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file, against what was applied last."""

    file: str
    change: Change


def read_files(name: str, directory: Path | None = None) -> dict[str, str]:
    """The numbered SQL files of a process, in their order."""
    where = directory or Path(name)
    found = {path.name: path.read_text(encoding="utf-8") for path in sorted(where.glob("[0-9]_*.sql"))}
    if not found:
        raise ConfigurationError(
            f"there is no file such as {where / '1_tables.sql'}",
            hint="Go to the directory in which the process was written, or give --directory.",
        )
    return found


def compare_files(
    connection: psycopg.Connection[Any], name: str, files: Mapping[str, str]
) -> list[FileChange]:
    """What has changed since they were applied last."""
    known: dict[str, str] = next(
        (
            one.files
            for one in Engine(connection).run(processes.registered_processes())
            if one.process == name
        ),
        {},
    )
    return [
        *(FileChange(file, _change(known.get(file), text)) for file, text in files.items()),
        *(FileChange(file, "removed") for file in known if file not in files),
    ]


def apply_files(connection: psycopg.Connection[Any], name: str, files: Mapping[str, str]) -> None:
    """All of them or none: each may be applied again, so none is left out."""
    try:
        with connection.transaction():
            for file, text in files.items():
                try:
                    connection.execute(text.encode())
                except psycopg.Error as error:
                    raise _explained(file, text, error) from error
            Engine(connection).run(
                processes.record_process_files(name, {file: _digest(text) for file, text in files.items()})
            )
    except psycopg.Error as error:
        raise translate(error) from error


def _explained(file: str, text: str, error: psycopg.Error) -> Exception:
    """Where it went wrong: a missing table is the mistake of the file, and not of the installation."""
    found = translate(error)
    if isinstance(found, DatabaseUnavailable | TryAgain):
        return found
    place = error.diag.statement_position
    line = f" line {text.count(chr(10), 0, int(place)) + 1}" if place else ""
    told = error.diag.message_primary or str(error)
    hint = error.diag.message_hint or found.hint if not isinstance(found, NotInstalled) else None
    return ConfigurationError(f"{file}{line}: {told}. Nothing was changed", hint=hint)


def _change(known: str | None, text: str) -> Change:
    if known is None:
        return "new"
    return "unchanged" if known == _digest(text) else "changed"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
