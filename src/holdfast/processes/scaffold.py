"""The files of a new business process, from the shape that `comms` has."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg

from holdfast.errors import ConfigurationError
from holdfast.processes.apply import apply_files
from holdfast.processes.names import check_name

Kind = Literal["attempts", "decision"]

_TEMPLATE = Path(__file__).parent / "template"


@dataclass(frozen=True, slots=True)
class Scaffold:
    """What is written for one name, and where."""

    name: str
    directory: Path
    kind: Kind = "attempts"

    @property
    def files(self) -> dict[Path, str]:
        found = {}
        for path in sorted((_TEMPLATE / self.kind).glob("*.template")):
            text = path.read_text(encoding="utf-8").replace("@ending@\n", _ending())
            for word, value in self._words.items():
                text = text.replace(f"@{word}@", value)
            found[self.directory / path.stem.replace("process", self.name)] = text
        return found

    @property
    def statements(self) -> dict[str, str]:
        """The SQL files by name, in their order."""
        return {path.name: text for path, text in self.files.items() if path.suffix == ".sql"}

    def create(self, connection: psycopg.Connection[Any] | None) -> list[Path]:
        """Write the files and, with a connection, install them: both or nothing."""
        self._refuse_what_is_there(connection)
        made = not self.directory.exists()
        try:
            if connection is not None:
                with connection.transaction():
                    apply_files(connection, self.name, self.statements)
                    self._write()
            else:
                self._write()
        except BaseException:
            self._remove(made)
            raise
        return list(self.files)

    @property
    def _words(self) -> dict[str, str]:
        at = "" if self.directory == Path(self.name) else f" --directory {self.directory}"
        return {"name": self.name, "worker": self._worker, "at": at}

    @property
    def _worker(self) -> str:
        """The command that runs a worker for it, where `holdfast process new` was called."""
        place = Path(os.path.relpath(self.directory))
        words = [part for part in place.parts if part != "."]
        if all(word.isidentifier() for word in words):
            return f"holdfast worker {'.'.join([*words, self.name])}:app --queues {self.name}"
        return f"cd {self.directory} && holdfast worker {self.name}:app --queues {self.name}"

    def _refuse_what_is_there(self, connection: psycopg.Connection[Any] | None) -> None:
        there = [path for path in self.files if path.exists()]
        if there:
            raise ConfigurationError(
                f"{there[0]} is there already", hint="Give another name or another directory."
            )
        if connection is not None:
            row = connection.execute("select to_regnamespace(%s)", [self.name]).fetchone()
            if row is not None and row[0] is not None:
                raise ConfigurationError(
                    f"the database has a schema {self.name} already",
                    hint="Give another name. To apply changed files: holdfast process apply.",
                )

    def _write(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for path, text in self.files.items():
            path.write_text(text, encoding="utf-8")

    def _remove(self, made: bool) -> None:
        for path in self.files:
            path.unlink(missing_ok=True)
        if made:
            shutil.rmtree(self.directory, ignore_errors=True)


def scaffold(name: str, directory: Path | None = None, kind: Kind = "attempts") -> Scaffold:
    """Refuses a name that cannot be a schema, a module and a queue at once."""
    check_name(name)
    return Scaffold(name, directory or Path(name), kind)


def _ending() -> str:
    return (_TEMPLATE / "ending.sql.template").read_text(encoding="utf-8")
