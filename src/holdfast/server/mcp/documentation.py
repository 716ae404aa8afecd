"""The documentation of this version, which the wheel contains: its pages, and a search in them."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import holdfast

MAX_EXCERPT = 400
_HEADING = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)
_WORD = re.compile(r"[a-z0-9_]{2,}")


class Section(NamedTuple):
    page: str
    heading: str
    text: str


def docs_directory() -> Path:
    """In the wheel beside the code; in a checkout, where the pages are written."""
    package = Path(holdfast.__file__).parent
    packed = package / "docs"
    return packed if packed.is_dir() else package.parents[1] / "docs"


@cache
def pages() -> dict[str, str]:
    """The text of each page, by its path. Decisions are for those who change Holdfast."""
    directory = docs_directory()
    found = {path.relative_to(directory).as_posix(): path for path in sorted(directory.rglob("*.md"))}
    return {
        name: path.read_text(encoding="utf-8") for name, path in found.items() if not name.startswith("adr/")
    }


def search(query: str) -> list[Section]:
    """Sections that have words of the query, the best first."""
    words = _words(query)
    found = [(score, section) for section in _sections() if (score := _score(section, words)) > 0]
    return [section for _, section in sorted(found, key=lambda one: -one[0])]


def excerpt(section: Section, query: str) -> str:
    """The place of a section where words of the query are."""
    text = section.text.lower()
    places = [place for place in (text.find(word) for word in _words(query)) if place >= 0]
    start = max(0, min(places, default=0) - MAX_EXCERPT // 4)
    return " ".join(section.text[start : start + MAX_EXCERPT].split())


def _words(query: str) -> set[str]:
    return set(_WORD.findall(query.lower()))


@cache
def _sections() -> tuple[Section, ...]:
    found: list[Section] = []
    for page, text in pages().items():
        starts = [match.start() for match in _HEADING.finditer(text)] or [0]
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
            heading, _, rest = text[start:end].partition("\n")
            found.append(Section(page, heading.lstrip("# "), rest.strip()))
    return tuple(found)


def _score(section: Section, words: set[str]) -> float:
    """How many of the words it has; those in the heading or in the name of the page count more."""
    heading = f"{section.page} {section.heading}".lower()
    text = section.text.lower()
    return sum(3.0 * (word in heading) + (word in text) + 0.01 * min(text.count(word), 20) for word in words)
