"""The SQL files of a release: their order, their version and their digest.

Tables come first (`schema/`, or new files in `migrations/`), then `functions/`, one file per protocol, then
`views/`, then `functions/listing.sql`, whose functions return rows of a view. Within a folder, files are
sorted by name. The comment of a function in the catalog is the first sentence of what stands above it.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_PACKAGED = Path(__file__).parent.parent / "sql"
_ON_VIEWS = "functions/listing.sql"
_FIRST_VERSION = 1

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
class Sources:
    """A tree of SQL files. Tests create trees of fictitious releases."""

    root: Path = _PACKAGED

    @cached_property
    def version(self) -> int:
        """The version of the newest migration, or the first version if there is none."""
        return max((number for number, _ in self.migrations), default=_FIRST_VERSION)

    @cached_property
    def digest(self) -> str:
        """A digest of all installed SQL: an unchanged release replaces nothing."""
        total = hashlib.sha256()
        for path in sorted(self.root.rglob("*.sql")):
            name = path.relative_to(self.root).as_posix()
            if not name.startswith("testing/"):
                total.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        return total.hexdigest()

    def read(self, name: str) -> SqlPiece:
        return SqlPiece(name, (self.root / name).read_text(encoding="utf-8"))

    @property
    def tables(self) -> list[SqlPiece]:
        return list(self._folder("schema"))

    @property
    def migrations(self) -> list[tuple[int, SqlPiece]]:
        """Each migration with the version that it leads to."""
        return [(int(Path(piece.name).name[:4]), piece) for piece in self._folder("migrations")]

    @property
    def functions(self) -> list[SqlPiece]:
        return [_with_comments(piece) for piece in self._functions() if piece.name != _ON_VIEWS]

    @property
    def views(self) -> list[SqlPiece]:
        return list(self._folder("views"))

    @property
    def functions_on_views(self) -> list[SqlPiece]:
        return [_with_comments(piece) for piece in self._functions() if piece.name == _ON_VIEWS]

    @property
    def function_headers(self) -> str:
        """All functions of the release, as JSON for `install/find_stale_functions.sql`."""
        return _describe(_FUNCTION, self._functions())

    @property
    def view_queries(self) -> str:
        """All views of the release, as JSON for `install/find_stale_views.sql`."""
        return _describe(_VIEW, self.views)

    def _functions(self) -> list[SqlPiece]:
        return list(self._folder("functions"))

    def _folder(self, folder: str) -> Iterator[SqlPiece]:
        for path in sorted((self.root / folder).rglob("*.sql")):
            yield self.read(path.relative_to(self.root).as_posix())


def _describe(pattern: re.Pattern[str], pieces: list[SqlPiece]) -> str:
    found: dict[str, str] = {}
    for piece in pieces:
        declared = {match["name"]: match.groupdict() for match in pattern.finditer(piece.sql)}
        if twice := sorted(found.keys() & declared):
            raise ValueError(f"{piece.name} states {', '.join(twice)} a second time")
        found |= {name: json.dumps(parts, ensure_ascii=False) for name, parts in declared.items()}
    return "[\n" + ",\n".join(found.values()) + "\n]"


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
