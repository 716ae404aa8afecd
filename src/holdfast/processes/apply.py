"""Applies the SQL files of a process in one transaction, and records their digests."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg

from holdfast._engine import Engine, processes
from holdfast.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    NotInstalled,
    TransactionConflict,
    translate,
)

Change = Literal["new", "changed", "unchanged", "removed"]


@dataclass(frozen=True, slots=True)
class FileChange:
    """How a file differs from the one applied last."""

    file: str
    change: Change


def read_files(name: str, directory: Path | None = None) -> dict[str, str]:
    """Read the numbered SQL files of a process, in order."""
    where = directory or Path(name)
    found = {path.name: path.read_text(encoding="utf-8") for path in sorted(where.glob("[0-9]_*.sql"))}
    if not found:
        raise ConfigurationError(
            f"no SQL files found: expected files such as {where / '1_tables.sql'}",
            hint="Change to the directory that contains the process, or use --directory.",
        )
    return found


def compare_files(
    connection: psycopg.Connection[Any], name: str, files: Mapping[str, str]
) -> list[FileChange]:
    """Compare files with the digests recorded when they were applied last."""
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
    """Apply all files, or none if one fails. Unchanged files are applied again, too."""
    try:
        with connection.transaction():
            for file, text in files.items():
                try:
                    connection.execute(text.encode())
                except psycopg.Error as error:
                    raise _file_error(file, text, error) from error
            Engine(connection).run(
                processes.record_process_files(name, {file: _digest(text) for file, text in files.items()})
            )
    except psycopg.Error as error:
        raise translate(error) from error


def _file_error(file: str, text: str, error: psycopg.Error) -> Exception:
    """Name the file and line. A missing table is an error in the file, not a missing installation."""
    found = translate(error)
    if isinstance(found, DatabaseUnavailable | TransactionConflict):
        return found
    position = error.diag.statement_position
    line = f" line {text.count(chr(10), 0, int(position)) + 1}" if position else ""
    message = error.diag.message_primary or str(error)
    hint = error.diag.message_hint or found.hint if not isinstance(found, NotInstalled) else None
    return ConfigurationError(f"{file}{line}: {message}. Nothing was changed", hint=hint)


def _change(known: str | None, text: str) -> Change:
    if known is None:
        return "new"
    return "unchanged" if known == _digest(text) else "changed"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
