"""The files of a new business process, from the shape that `comms` has."""

import keyword
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from holdfast.errors import ConfigurationError, translate

_TEMPLATE = Path(__file__).parent / "template"
_NAME = re.compile(r"[a-z][a-z0-9_]{1,29}")
_TAKEN = {"queues", "internal", "comms", "public", "holdfast", "test", "tests"}


@dataclass(frozen=True, slots=True)
class Scaffold:
    """What is written for one name, and where."""

    name: str
    directory: Path

    @property
    def files(self) -> dict[Path, str]:
        found = {}
        for path in sorted(_TEMPLATE.glob("*.template")):
            text = path.read_text(encoding="utf-8").replace("@name@", self.name)
            found[self.directory / path.stem.replace("process", self.name)] = text
        return found

    @property
    def statements(self) -> list[str]:
        return [text for path, text in self.files.items() if path.suffix == ".sql"]

    def write(self) -> list[Path]:
        """All or nothing: a file that is there is never overwritten."""
        there = [path for path in self.files if path.exists()]
        if there:
            raise ConfigurationError(
                f"{there[0]} is there already", hint="Give another name or another directory."
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        for path, text in self.files.items():
            path.write_text(text, encoding="utf-8")
        return list(self.files)

    def install(self, connection: psycopg.Connection[Any]) -> None:
        """In one transaction."""
        try:
            with connection.transaction():
                for statement in self.statements:
                    connection.execute(statement.encode())
        except psycopg.Error as error:
            raise translate(error) from error


def scaffold(name: str, directory: Path | None = None) -> Scaffold:
    """Refuses a name that cannot be a schema, a module and a queue at once."""
    if not _NAME.fullmatch(name) or name.startswith("pg_") or keyword.iskeyword(name) or name in _TAKEN:
        raise ConfigurationError(
            f"{name!r} cannot be the name of a process",
            hint="Give a word of 2 to 30 lower-case letters, digits and _, such as shipping.",
        )
    return Scaffold(name, directory or Path(name))
