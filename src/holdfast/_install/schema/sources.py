"""The SQL files of a release: their parts, their order, their version and their digests.

Tables come first (`schema/`, or new files in `migrations/`), then `functions/`, one file per protocol, then
`views/`, then `functions/listing.sql`, whose functions return rows of a view. Within a folder, files are
sorted by name. The comment of a function in the catalog is the first sentence of what stands above it.

Core is in the folders at the top. `units/NAME` has the same folders for each unit that a database may do
without, and `units/NAME/absent` for what core calls where it is not installed.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from holdfast.sql.optional_units import CORE, OPTIONAL, SQL, Unit

_ON_VIEWS = "functions/listing.sql"
_FIRST_VERSION = 1
_UNITS = "units/"

# The declaration up to "language" is the part that callers see and that "create or replace" cannot change.
_FUNCTION = re.compile(
    r"create or replace function (?P<name>[a-z_.]+)(?P<header>\(.*?)\s+language\b", re.DOTALL
)
_DESCRIBED = re.compile(
    r"^(?P<text>(?:--[^\n]*\n)+)create or replace function (?P<name>[a-z_.]+)\(", re.MULTILINE
)
_FIRST_SENTENCE = re.compile(r"(.*?)[.:](?=\s|$)", re.DOTALL)
_VIEW = re.compile(
    r"create or replace view (?P<name>[a-z_.]+)[^;]*? as\s(?P<query>.*?);\s*\ncomment on", re.DOTALL
)


@dataclass(frozen=True)
class SqlPiece:
    """Statements that are sent together, with a name for messages."""

    name: str
    sql: str


@dataclass(frozen=True)
class Part:
    """Files that are installed together: core, a unit, or what takes the place of a unit."""

    name: str
    unit: str
    root: Path
    folder: str = ""

    @property
    def tables(self) -> list[SqlPiece]:
        return [*self._optional("schemas.sql"), *self._folder("schema")]

    @property
    def migrations(self) -> list[tuple[int, SqlPiece]]:
        """Each migration with the version that it leads to."""
        return [(int(Path(piece.name).name[:4]), piece) for piece in self._folder("migrations")]

    @property
    def functions(self) -> list[SqlPiece]:
        return [_with_comments(piece) for piece in self.stated_functions if piece.name != _ON_VIEWS]

    @property
    def views(self) -> list[SqlPiece]:
        return list(self._folder("views"))

    @property
    def functions_on_views(self) -> list[SqlPiece]:
        return [_with_comments(piece) for piece in self.stated_functions if piece.name == _ON_VIEWS]

    @property
    def grants(self) -> list[SqlPiece]:
        return self._optional("grants.sql")

    @property
    def registration(self) -> list[SqlPiece]:
        """What its own functions have to register."""
        return self._optional("register.sql")

    @property
    def facts(self) -> list[SqlPiece]:
        """Queries for what should be the same on every shard."""
        return self._optional("facts.sql")

    @property
    def stated_functions(self) -> list[SqlPiece]:
        return list(self._folder("functions"))

    @property
    def digest(self) -> str:
        """A digest of its SQL: an unchanged part replaces nothing."""
        paths = {path for path in (self.root / self.folder).rglob("*.sql") if self._contains(path)}
        return _digest(self.root, paths)

    def _contains(self, path: Path) -> bool:
        name = path.relative_to(self.root / self.folder).as_posix()
        return not name.startswith((_UNITS, "testing/", "absent/"))

    def _folder(self, folder: str) -> Iterator[SqlPiece]:
        for path in sorted((self.root / self.folder / folder).rglob("*.sql")):
            yield read(self.root, path)

    def _optional(self, name: str) -> list[SqlPiece]:
        path = self.root / self.folder / name
        return [read(self.root, path)] if path.exists() else []


@dataclass(frozen=True)
class Sources:
    """A tree of SQL files. Tests create trees of fictitious releases."""

    root: Path = SQL

    @cached_property
    def core(self) -> Part:
        return Part(CORE, CORE, self.root)

    @cached_property
    def units(self) -> list[Part]:
        """Those that a database may do without."""
        return [Part(unit.name, unit.name, self.root, folder) for unit, folder in self._optional()]

    @cached_property
    def absent(self) -> list[Part]:
        """What takes the place of each unit that is not installed."""
        return [
            Part(f"without_{unit.name}", unit.name, self.root, f"{folder}/absent")
            for unit, folder in self._optional()
        ]

    @property
    def parts(self) -> list[Part]:
        return [self.core, *self.units, *self.absent]

    @cached_property
    def version(self) -> int:
        """The version of the newest migration, or the first version if there is none."""
        return max((number for number, _, _ in self.migrations), default=_FIRST_VERSION)

    @cached_property
    def digest(self) -> str:
        """A digest of all installed SQL."""
        return hashlib.sha256("\n".join(part.digest for part in self.parts).encode()).hexdigest()

    @property
    def migrations(self) -> list[tuple[int, SqlPiece, Part]]:
        """In their order: core and the units count together."""
        found = [(number, piece, part) for part in self.parts for number, piece in part.migrations]
        return sorted(found, key=lambda one: one[:1])

    @property
    def offered(self) -> str:
        """The units and the digests of their parts, as JSON for `install/choose_units.sql`."""
        core = {"unit": CORE, "schemas": ["queues", "internal"], "digest": self.core.digest}
        schemas = {unit.name: list(unit.schemas) for unit in OPTIONAL}
        rest = [
            {
                "unit": part.unit,
                "schemas": schemas[part.unit],
                "digest": part.digest,
                "absent": absent.digest,
            }
            for part, absent in zip(self.units, self.absent, strict=True)
        ]
        return json.dumps([core, *rest])

    @property
    def function_headers(self) -> str:
        """All functions of the release, as JSON for `install/find_stale_functions.sql`."""
        return self._describe(_FUNCTION, lambda part: part.stated_functions)

    @property
    def view_queries(self) -> str:
        """All views of the release, as JSON for `install/find_stale_views.sql`."""
        return self._describe(_VIEW, lambda part: part.views)

    def read(self, name: str) -> SqlPiece:
        return read(self.root, self.root / name)

    def _optional(self) -> list[tuple[Unit, str]]:
        known = [(unit, f"{_UNITS}{unit.name}") for unit in OPTIONAL]
        return [(unit, folder) for unit, folder in known if (self.root / folder).is_dir()]

    def _describe(self, pattern: re.Pattern[str], pieces_of: Callable[[Part], Iterable[SqlPiece]]) -> str:
        """Names are unique. Only what takes the place of a unit states names of that unit again."""
        found: dict[str, str] = {}
        entries: list[str] = []
        for part in self.parts:
            for piece in pieces_of(part):
                declared = {match["name"]: match.groupdict() for match in pattern.finditer(piece.sql)}
                known = {name for name, unit in found.items() if part in self.absent and unit == part.unit}
                if twice := sorted((found.keys() - known) & declared.keys()):
                    raise ValueError(f"{piece.name} states {', '.join(twice)} a second time")
                found |= dict.fromkeys(declared, part.unit)
                entries += [
                    json.dumps({"part": part.name} | parts, ensure_ascii=False) for parts in declared.values()
                ]
        return "[\n" + ",\n".join(entries) + "\n]"


def read(root: Path, path: Path) -> SqlPiece:
    return SqlPiece(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


def _digest(root: Path, paths: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for path in sorted(paths):
        name = path.relative_to(root).as_posix()
        total.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def _with_comments(piece: SqlPiece) -> SqlPiece:
    """Names of functions are unique, so a comment needs no parameters."""
    lines = [piece.sql]
    for match in _DESCRIBED.finditer(piece.sql):
        text = " ".join(line.removeprefix("--").strip() for line in match["text"].splitlines())
        first = _FIRST_SENTENCE.match(text)
        if first is None:
            raise ValueError(f"{piece.name}: what stands above {match['name']} is no sentence")
        quoted = first[1].replace("'", "''")
        lines.append(f"comment on function {match['name']} is '{quoted}.';\n")
    return SqlPiece(piece.name, "".join(lines))
