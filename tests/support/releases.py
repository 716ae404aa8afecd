"""Other releases: copies of this one's SQL with changes, and the last with version 1 of the schema."""

import re
import shutil
import tarfile
from pathlib import Path

from holdfast._install.schema import Sources

# It had no units: everything was core.
_ALL_IN_CORE = """
select set_config('holdfast.' || s.name, s.value, true)
from (values ('units', '{core}'), ('parts', '{core}'), ('replaced', '{core}'),
  ('added', case when to_regclass('queues.installation') is null then '{core}' else '{}' end)) s(name, value);
"""
# git archive e8374d9 src/holdfast | xz -9e
_VERSION_1 = Path(__file__).parent.parent / "migrations/version_1.tar.xz"


def unpack_version_1(root: Path) -> Path:
    """The last release with version 1 of the schema. Processes with this directory as PYTHONPATH run it."""
    with tarfile.open(_VERSION_1) as archive:
        archive.extractall(root, filter="data")
    return root / "src"


def version_1(root: Path) -> Sources:
    """The SQL of that release."""
    sql = unpack_version_1(root) / "holdfast/sql"
    listing = sql / "functions/listing"  # a folder of its own then
    text = "\n".join(path.read_text() for path in sorted(listing.glob("*.sql")))
    shutil.rmtree(listing)
    (sql / "functions/listing.sql").write_text(text)
    (sql / "views.sql").write_text("\n".join(path.read_text() for path in sorted(sql.glob("views/*.sql"))))
    of = {path.stem: path.read_text() for path in [*sql.glob("*.sql"), *sql.glob("install/*.sql")]}
    of |= {
        "choose_units": _ALL_IN_CORE,
        "protect_facts": "",
        "revokes": of["single_login_grants"],
        "record": of["register_processes"] + of["record"],
    }
    text = "".join(f"-- section: {name}\n{text}" for name, text in of.items())
    for name in ("install.sql", "rights.sql"):
        (sql / name).write_text(text)
    return Sources(sql)


class Release:
    """A tree of SQL files to change before it is migrated to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(Sources().root, root)

    @property
    def sources(self) -> Sources:
        """A new value each time, because a `Sources` remembers what it has read."""
        return Sources(self.root)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text, f"{name} has no {old!r}"
        self.write(name, text.replace(old, new))

    def function(self, name: str) -> str:
        """This function or view, and what describes it, as its file has them."""
        (found,) = (
            match[0] for path in self._files() for match in _statements(name).finditer(path.read_text())
        )
        return found

    def change_function(self, name: str, old: str, new: str) -> None:
        found = self.function(name)
        assert old in found, f"{name} has no {old!r}"
        for path in self._files():
            path.write_text(path.read_text().replace(found, found.replace(old, new)))

    def remove_function(self, name: str) -> None:
        self.change_function(name, self.function(name), "")

    def _files(self) -> list[Path]:
        others = ("migrations", "front", "testing")
        return [path for path in self.root.rglob("*.sql") if path.parent.name not in others]

    def append(self, name: str, text: str) -> None:
        self.write(name, (self.root / name).read_text() + text)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()


def _statements(name: str) -> re.Pattern[str]:
    """The declaration of a function or view of this name, with the lines above it that describe it."""
    function, view = rf"function \w+\.{name}\(.*?\$\$;\n", rf"view \w+\.{name}\b.*?;\n"
    return re.compile(rf"(?ms)(?:^--[^\n]*\n)*^create or replace (?:{function}|{view})")
