"""The SQL files of a release: their parts, their order, their version and their digests.

Tables come first (`schema/`, or new files in `migrations/`), then `functions/`, one file per protocol, then
`views.sql`, then `functions/listing.sql`, whose functions return rows of a view. Within a folder, files are
sorted by name. The comment of a function or view in the catalog is the first sentence above it.

A file with lines such as `-- section: grants` consists of sections, which are applied one by one. Each unit
that a database may do without is such a file, `units/NAME.sql`, which also has what takes its place where it
is not installed. The folder `units/NAME` has further functions, and its migrations.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from holdfast.sql.optional_units import CORE, OPTIONAL, SQL, Unit

_ON_VIEWS = "functions/listing.sql"
_FIRST_VERSION = 1
_SECTION = re.compile(r"^-- section: (.+)\n", re.MULTILINE)
_IF_ABSENT = " if absent"

# The declaration up to "language" is the part that callers see and that "create or replace" cannot change.
_FUNCTION = re.compile(
    r"create or replace function (?P<name>[a-z_.]+)(?P<header>\(.*?)\s+language\b", re.DOTALL
)
_DESCRIBED = re.compile(
    r"^(?P<text>(?:--[^\n]*\n)+)create or replace (?P<kind>function|view) (?P<name>[a-z_.]+)", re.MULTILINE
)
_COMMENT = re.compile(r"^comment on (?:(?!;\n).)*;\n", re.DOTALL | re.MULTILINE)
_FIRST_SENTENCE = re.compile(r"(.*?)[.:](?=\s|$)", re.DOTALL)
_VIEW = re.compile(r"create or replace view (?P<name>[a-z_.]+)[^;]*? as\s(?P<query>[^;]*);")


@dataclass(frozen=True)
class SqlPiece:
    """Statements that are sent together, with a name for messages."""

    name: str
    sql: str


@dataclass(frozen=True)
class Part:
    """Pieces that are installed together: core, a unit, or what takes the place of a unit."""

    name: str
    unit: str
    pieces: dict[str, list[SqlPiece]]
    """By what they are: schemas, tables, migrations, functions, views, grants, registration and facts.

    `registration` is what its own functions have to register. `facts` are queries for what should be the
    same on every shard.
    """

    def of(self, kind: str) -> list[SqlPiece]:
        return self.pieces.get(kind, [])

    @property
    def tables(self) -> list[SqlPiece]:
        return [*self.of("schemas"), *self.of("tables")]

    @property
    def comments(self) -> list[SqlPiece]:
        """What its tables and columns are for, after a migration: no migration says it a second time."""
        text = "".join(found for piece in self.of("tables") for found in _COMMENT.findall(piece.sql))
        return [SqlPiece(f"comments of {self.name}", text)]

    @property
    def migrations(self) -> list[tuple[int, SqlPiece]]:
        """Each migration with the version that it leads to."""
        return [(int(Path(piece.name).name[:4]), piece) for piece in self.of("migrations")]

    @property
    def functions(self) -> list[SqlPiece]:
        return [_with_comments(piece) for piece in self.of("functions") if piece.name != _ON_VIEWS]

    @property
    def views(self) -> list[SqlPiece]:
        return [_with_comments(piece) for piece in self.of("views")]

    @property
    def functions_on_views(self) -> list[SqlPiece]:
        return [_with_comments(piece) for piece in self.of("functions") if piece.name == _ON_VIEWS]

    @property
    def digest(self) -> str:
        """A digest of its SQL: an unchanged part replaces nothing."""
        total = hashlib.sha256()
        for piece in (piece for pieces in self.pieces.values() for piece in pieces):
            total.update(f"{piece.name}\n{hashlib.sha256(piece.sql.encode()).hexdigest()}\n".encode())
        return total.hexdigest()


@dataclass(frozen=True)
class Sources:
    """A tree of SQL files. Tests create trees of fictitious releases."""

    root: Path = SQL

    @cached_property
    def core(self) -> Part:
        pieces = {
            "installation": [self.read("install.sql"), self.read("rights.sql")],
            "tables": self._folder("schema"),
            "migrations": self._folder("migrations"),
            "functions": self._folder("functions"),
            "views": [self.read("views.sql")],
            "grants": [self.section("rights.sql", "grants")],
        }
        return Part(CORE, CORE, pieces)

    @cached_property
    def units(self) -> list[Part]:
        """Those that a database may do without."""
        return [self._unit(unit) for unit in self._optional]

    @cached_property
    def absent(self) -> list[Part]:
        """What takes the place of each unit that is not installed."""
        return [
            Part(
                f"without_{unit.name}",
                unit.name,
                {
                    kind.removesuffix(_IF_ABSENT): [piece]
                    for kind, piece in self.sections(f"units/{unit.name}.sql").items()
                    if kind.endswith(_IF_ABSENT)
                },
            )
            for unit in self._optional
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
        """The units and the digests of their parts, as JSON for the section `choose_units`."""
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
        """All functions of the release, as JSON for the section `find_stale_functions`."""
        return self._describe(_FUNCTION, lambda part: part.of("functions"))

    @property
    def view_queries(self) -> str:
        """All views of the release, as JSON for the section `find_stale_views`."""
        return self._describe(_VIEW, lambda part: part.of("views"))

    def read(self, name: str) -> SqlPiece:
        return SqlPiece(name, (self.root / name).read_text(encoding="utf-8"))

    def sections(self, name: str) -> dict[str, SqlPiece]:
        """What stands between the lines that begin a section of this file."""
        _, *found = _SECTION.split(self.read(name).sql)
        return {
            section: SqlPiece(f"{name}: {section}", sql)
            for section, sql in zip(found[::2], found[1::2], strict=True)
        }

    def section(self, name: str, section: str) -> SqlPiece:
        return self.sections(name)[section]

    def _folder(self, folder: str, pattern: str = "**/*.sql") -> list[SqlPiece]:
        paths = sorted((self.root / folder).glob(pattern))
        return [self.read(path.relative_to(self.root).as_posix()) for path in paths]

    def _unit(self, unit: Unit) -> Part:
        folder = f"units/{unit.name}"
        sections = self.sections(f"{folder}.sql")
        pieces = {kind: [piece] for kind, piece in sections.items() if not kind.endswith(_IF_ABSENT)}
        pieces["functions"] += self._folder(folder, "*.sql")
        pieces["migrations"] = self._folder(f"{folder}/migrations")
        return Part(unit.name, unit.name, pieces)

    @property
    def _optional(self) -> list[Unit]:
        return [unit for unit in OPTIONAL if (self.root / f"units/{unit.name}.sql").exists()]

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


def _with_comments(piece: SqlPiece) -> SqlPiece:
    """Names of functions are unique, so a comment needs no parameters."""
    lines = [piece.sql]
    for match in _DESCRIBED.finditer(piece.sql):
        text = " ".join(line.removeprefix("--").strip() for line in match["text"].splitlines())
        first = _FIRST_SENTENCE.match(text)
        if first is None:
            raise ValueError(f"{piece.name}: what stands above {match['name']} is no sentence")
        quoted = first[1].replace("'", "''")
        lines.append(f"comment on {match['kind']} {match['name']} is '{quoted}.';\n")
    return SqlPiece(piece.name, "".join(lines))
