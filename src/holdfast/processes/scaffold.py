"""Writes the files of a new business process from templates."""

import keyword
import os
import re
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Literal

import psycopg

from holdfast.errors import ConfigurationError
from holdfast.processes.apply import apply_files

Kind = Literal["attempts", "decision", "python"]

_TEMPLATE = Path(__file__).parent / "template"
_PARTS = _TEMPLATE / "parts"
_PART = re.compile(r"^@part (\w+)@\n", re.MULTILINE)
_NAME = re.compile(r"[a-z][a-z0-9_]{1,29}", re.ASCII)
_TAKEN = {"queues", "internal", "comms", "public", "holdfast", "test", "tests", "information_schema"}

# Keywords that pg_get_keywords() of PostgreSQL 14 to 18 lists as reserved or as not usable for functions and
# types: a schema with such a name would have to be quoted everywhere.
SQL_WORDS = frozenset(Path(__file__).with_name("sql_words.txt").read_text(encoding="utf-8").split())


@dataclass(frozen=True, slots=True)
class Scaffold:
    """The files of one new process."""

    name: str
    directory: Path
    kind: Kind = "attempts"

    @property
    def files(self) -> dict[Path, str]:
        found = {}
        for path in self._templates:
            text = self._with_parts(path.read_text(encoding="utf-8"))
            for name, value in self._values.items():
                text = text.replace(f"@{name}@", value)
            found[self.directory / path.stem.replace("process", self.name)] = text
        return found

    @property
    def _templates(self) -> list[Path]:
        """A process in Python has the tables, facts and handlers of one with attempts."""
        kinds = ["attempts", "python"] if self.kind == "python" else [self.kind]
        found = {path.name: path for kind in kinds for path in (_TEMPLATE / kind).glob("*.template")}
        return [found[name] for name in sorted(found)]

    def _with_parts(self, text: str) -> str:
        """Insert what differs between a supervisor that is a function and one that is a task."""
        of = _PARTS / ("task" if self.kind == "python" else "function")
        while part := _PART.search(text):
            path = next(found for at in (of, _PARTS) if (found := at / f"{part[1]}.sql").exists())
            text = text.replace(part[0], path.read_text(encoding="utf-8"), 1)
        return text

    @property
    def statements(self) -> dict[str, str]:
        """The SQL files by name, in order."""
        return {path.name: text for path, text in self.files.items() if path.suffix == ".sql"}

    def create(self, connection: psycopg.Connection[Any] | None) -> list[Path]:
        """Write the files and, with a connection, apply them. If one fails, neither is done."""
        self._refuse_existing(connection)
        is_new = not self.directory.exists()
        try:
            if connection is not None:
                with connection.transaction():
                    apply_files(connection, self.name, self.statements)
                    self._write()
            else:
                self._write()
        except BaseException:
            self._remove(is_new)
            raise
        return list(self.files)

    @property
    def _values(self) -> dict[str, str]:
        at = "" if self.directory == Path(self.name) else f" --directory {self.directory}"
        return {"name": self.name, "worker": self._worker_command, "at": at}

    @property
    def _worker_command(self) -> str:
        """The command that runs a worker, from the current directory."""
        location = Path(os.path.relpath(self.directory))
        parts = [part for part in location.parts if part != "."]
        if all(part.isidentifier() for part in parts):
            return f"holdfast worker {'.'.join([*parts, self.name])}:app --queues {self.name}"
        return f"cd {self.directory} && holdfast worker {self.name}:app --queues {self.name}"

    def _refuse_existing(self, connection: psycopg.Connection[Any] | None) -> None:
        existing = [path for path in self.files if path.exists()]
        if existing:
            raise ConfigurationError(
                f"{existing[0]} already exists", hint="Choose another name or directory."
            )
        if connection is not None:
            row = connection.execute("select to_regnamespace(%s)", [self.name]).fetchone()
            if row is not None and row[0] is not None:
                raise ConfigurationError(
                    f"the database already has a schema {self.name}",
                    hint="Choose another name. To apply changed files, run holdfast process apply.",
                )

    def _write(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for path, text in self.files.items():
            path.write_text(text, encoding="utf-8")

    def _remove(self, is_new: bool) -> None:
        for path in self.files:
            path.unlink(missing_ok=True)
        if is_new:
            shutil.rmtree(self.directory, ignore_errors=True)


def scaffold(name: str, directory: Path | None = None, kind: Kind = "attempts") -> Scaffold:
    """Raise ConfigurationError if the name cannot serve as schema, module and queue."""
    check_name(name)
    return Scaffold(name, directory or Path(name), kind)


def check_name(name: str) -> None:
    """The name becomes a schema, a queue, a Python module and part of every other name."""
    problem = _name_problem(name)
    if problem is not None:
        raise ConfigurationError(
            f"{name!r} cannot be the name of a process: {problem}",
            hint="Use 2 to 30 lower-case letters, digits and underscores, such as shipping.",
        )


def _name_problem(name: str) -> str | None:
    problems = {
        "it must consist of lower-case letters, digits and underscores": not _NAME.fullmatch(name)
        or name.startswith("pg_"),
        "it is a reserved word in SQL": name in SQL_WORDS,
        "it is a reserved word in Python": keyword.iskeyword(name),
        "Holdfast or PostgreSQL already uses it": name in _TAKEN,
        "its module would hide a module of the standard library": name in sys.stdlib_module_names,
        "its module would hide an installed package": name in packages_distributions(),
    }
    return next((problem for problem, applies in problems.items() if applies), None)
