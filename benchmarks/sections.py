"""Where figures are written, and sections with benchmarks of their own, each between marks with its name."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
"""What users compare."""
DETAILS = Path(__file__).parent / "results.md"
"""Targets, parts and costs: for those who change the engine."""
WORKFLOWS = "make bench-workflows"
PAGES = "make bench-pages"
_ANY = re.compile(r"<!-- begin: (.+) -->\n.*?\n<!-- end: \1 -->\n", re.DOTALL)


def put(page: Path, name: str, section: str) -> None:
    """In place of the last one, else at the end. What other benchmarks wrote stays."""
    text = page.read_text() if page.exists() else ""
    marked = f"<!-- begin: {name} -->\n\n{section.strip()}\n\n<!-- end: {name} -->\n"
    old = next((found.group() for found in _ANY.finditer(text) if found[1] == name), None)
    if old is not None:
        page.write_text(text.replace(old, marked))
    else:
        page.write_text(f"{text.rstrip()}\n\n{marked}".lstrip())


def kept(page: Path) -> str:
    """All of them, for a page that is written again."""
    text = page.read_text() if page.exists() else ""
    return "".join(f"\n{found.group()}" for found in _ANY.finditer(text))
