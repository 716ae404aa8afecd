"""The SQL of a release: its files, the order in which they are applied, its version and its digest.

Tables come first (`schema/`, or what is new in `migrations/`), then `functions/`, then `views/`, then the
functions in `functions/listing/`, which return the rows of a view. Within a folder, names are in order.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_PACKAGED = Path(__file__).parent.parent / "sql"
_ON_VIEWS = "functions/listing"
_FIRST_VERSION = 1

# Up to "language", a function's declaration is what callers see and "create or replace" cannot change.
_FUNCTION = re.compile(
    r"create or replace function (?P<name>[a-z_.]+)(?P<header>\(.*?)\s+language\b", re.DOTALL
)
_VIEW = re.compile(
    r"create or replace view (?P<name>[a-z_.]+)[^;]*? as\s(?P<query>.*?);\s*\ncomment on", re.DOTALL
)


@dataclass(frozen=True)
class Piece:
    """Statements that are sent together, and what people call them."""

    name: str
    sql: str


@dataclass(frozen=True)
class Sources:
    """A tree of SQL files. Tests make trees of releases that never were."""

    root: Path = _PACKAGED

    @cached_property
    def version(self) -> int:
        """The newest migration leads to it; before there was any, it is the first."""
        return max((number for number, _ in self.migrations), default=_FIRST_VERSION)

    @cached_property
    def digest(self) -> str:
        """Stands for all that may be in a database, so that nothing is replayed in vain."""
        total = hashlib.sha256()
        for path in sorted(self.root.rglob("*.sql")):
            name = path.relative_to(self.root).as_posix()
            if not name.startswith("testing/"):
                total.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        return total.hexdigest()

    def read(self, name: str) -> Piece:
        return Piece(name, (self.root / name).read_text(encoding="utf-8"))

    @property
    def tables(self) -> list[Piece]:
        return list(self._folder("schema"))

    @property
    def migrations(self) -> list[tuple[int, Piece]]:
        """Each with the version that it leads to."""
        return [(int(Path(piece.name).name[:4]), piece) for piece in self._folder("migrations")]

    @property
    def functions(self) -> list[Piece]:
        return [piece for piece in self._functions() if not piece.name.startswith(f"{_ON_VIEWS}/")]

    @property
    def views(self) -> list[Piece]:
        return list(self._folder("views"))

    @property
    def functions_on_views(self) -> list[Piece]:
        return list(self._folder(_ON_VIEWS))

    @property
    def function_headers(self) -> str:
        """Every function to come, as JSON for `install/find_stale_functions.sql`."""
        return _describe(_FUNCTION, self._functions())

    @property
    def view_queries(self) -> str:
        """Every view to come, as JSON for `install/find_stale_views.sql`."""
        return _describe(_VIEW, self.views)

    def _functions(self) -> list[Piece]:
        return list(self._folder("functions"))

    def _folder(self, folder: str) -> Iterator[Piece]:
        for path in sorted((self.root / folder).rglob("*.sql")):
            yield self.read(path.relative_to(self.root).as_posix())


def _describe(pattern: re.Pattern[str], pieces: list[Piece]) -> str:
    found = []
    for piece in pieces:
        match = pattern.search(piece.sql)
        if match is None or match["name"].partition(".")[2] != Path(piece.name).stem:
            raise ValueError(f"{piece.name} does not declare what its name says")
        found.append(json.dumps(match.groupdict(), ensure_ascii=False))
    return "[\n" + ",\n".join(found) + "\n]"
