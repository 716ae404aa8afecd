"""The documentation as data: sections, tables and code blocks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"

_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{2,4} (?P<title>.+)$", re.MULTILINE)
_QUOTED = re.compile(r"`([^`]+)`")


def pages() -> list[Path]:
    own = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
    return [*(ROOT / name for name in own), *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> list[tuple[str, str]]:
    """Every code block with its language, in order."""
    return [(match["language"], match["code"]) for match in _FENCE.finditer(text)]


def prose(text: str) -> str:
    """The text without its code blocks."""
    return _FENCE.sub("", text)


def code(text: str, language: str) -> list[str]:
    return [found for spoken, found in blocks(text) if spoken == language]


def sections(page: Path) -> dict[str, str]:
    """What stands below each heading, up to the next one; the quotes of a title are left out."""
    text = page.read_text()
    headings = list(_HEADING.finditer(_FENCE.sub(lambda match: "\0" * len(match[0]), text)))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    return {
        heading["title"].replace("`", ""): text[heading.end() : end]
        for heading, end in zip(headings, ends, strict=True)
    }


def rows(text: str) -> list[list[str]]:
    """The cells of every table in a text, without heads and without quotes."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {n - 1 for n, line in enumerate(lines) if set(line) <= set("|- ")}
    return [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        for n, line in enumerate(lines)
        if n not in heads and not set(line) <= set("|- ")
    ]


def quoted(text: str) -> set[str]:
    """Every phrase in `quotes`, outside of code blocks."""
    return set(_QUOTED.findall(prose(text)))
