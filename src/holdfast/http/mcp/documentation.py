"""The documentation of this version, which the wheel contains: search and read."""

import re
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

import holdfast
from holdfast.errors import did_you_mean
from holdfast.http.mcp.caller import ToolContext

MAX_HITS = 8
MAX_EXCERPT = 400
MAX_PAGE = 20_000
_HEADING = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)
_WORD = re.compile(r"[a-z0-9_]{2,}")


class Section(NamedTuple):
    page: str
    heading: str
    text: str


async def docs_search(ctx: ToolContext, query: Annotated[str, Field(min_length=2, max_length=200)]) -> str:
    """Search the documentation of this version of Holdfast. Read a page that is found with `docs_read`."""
    del ctx
    words = set(_WORD.findall(query.lower()))
    ranked = sorted(_sections(), key=lambda section: -_score(section, words))
    hits = [section for section in ranked if _score(section, words) > 0]
    found = "\n\n".join(f"{hit.page} · {hit.heading}\n{_excerpt(hit.text, words)}" for hit in hits[:MAX_HITS])
    return f"{len(hits)} sections. left out: {max(0, len(hits) - MAX_HITS)}.\n\n{found}".rstrip()


async def docs_read(
    ctx: ToolContext,
    page: Annotated[str, Field(max_length=200, description="Such as howto/run-workers.md.")],
    start: Annotated[int, Field(ge=0, description="The first character, to read on in a long page.")] = 0,
) -> str:
    """Read a page of the documentation of this version of Holdfast."""
    del ctx
    known = _pages()
    if page not in known:
        raise ToolError(f"there is no page {page!r}{did_you_mean(page, known)}")
    text = known[page]
    rest = max(0, len(text) - start - MAX_PAGE)
    more = f" Read on with start={start + MAX_PAGE}." if rest else ""
    return f"{page}, left out: {rest} characters.{more}\n\n{text[start : start + MAX_PAGE]}"


def docs_directory() -> Path:
    """In the wheel beside the code; in a checkout, where the pages are written."""
    package = Path(holdfast.__file__).parent
    packed = package / "docs"
    return packed if packed.is_dir() else package.parents[1] / "docs"


@cache
def _pages() -> dict[str, str]:
    directory = docs_directory()
    found = {path.relative_to(directory).as_posix(): path for path in sorted(directory.rglob("*.md"))}
    return {
        name: path.read_text(encoding="utf-8") for name, path in found.items() if not name.startswith("adr/")
    }


@cache
def _sections() -> tuple[Section, ...]:
    found: list[Section] = []
    for page, text in _pages().items():
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


def _excerpt(text: str, words: set[str]) -> str:
    lower = text.lower()
    places = [place for place in (lower.find(word) for word in words) if place >= 0]
    start = max(0, min(places, default=0) - MAX_EXCERPT // 4)
    return " ".join(text[start : start + MAX_EXCERPT].split())
