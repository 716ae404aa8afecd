"""Releases that never were: copies of this one's SQL with something changed."""

import shutil
from pathlib import Path

from holdfast.schema import Sources


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
