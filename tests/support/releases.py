"""Other releases: copies of this one's SQL with something changed, and the SQL of version 1 of the schema."""

import shutil
import tarfile
from pathlib import Path

from holdfast.schema import Sources

# git archive COMMIT:src/holdfast/sql | xz -9e
_VERSION_1 = Path(__file__).parent.parent / "migrations/version_1.tar.xz"


def version_1(root: Path) -> Sources:
    """The last release before the first migration, unpacked there."""
    with tarfile.open(_VERSION_1) as archive:
        archive.extractall(root, filter="data")
    return Sources(root)


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

    def append(self, name: str, text: str) -> None:
        self.write(name, (self.root / name).read_text() + text)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()
