"""A bug that is planted on purpose: a small replacement in one file, and the tests that have to notice it."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = Path("src/holdfast")


class DoesNotApply(Exception):
    """The code under a bug has changed: the bug must be rewritten."""


@dataclass(frozen=True)
class Bug:
    name: str
    """What the code does wrongly, as a sentence."""
    file: str
    """Below src/holdfast."""
    right: str
    wrong: str
    tests: str
    """What has to fail, as arguments of pytest: files, or tests of slow ones."""

    @property
    def path(self) -> str:
        return (SOURCES / self.file).as_posix()

    def planted(self, text: str) -> str:
        """The text of the file with the bug in it."""
        places = text.count(self.right)
        if places != 1:
            raise DoesNotApply(f"{self.path} has {places} places, and not one, for the bug: {self.name}")
        return text.replace(self.right, self.wrong)
