"""The pictures of the documentation: each is used, and each that is used exists."""

import re
from pathlib import Path

from support.documents import DOCS, ROOT, name_of, pages

IMAGES = DOCS / "images"
_USED = re.compile(
    r"!\[[^\]]+\]\((?P<markdown>[^)\s#]+)[^)]*\)|<img src=\"(?P<html>[^\"#]+)|srcset=\"(?P<set>[^\"#]+)"
)


def _used() -> dict[Path, str]:
    """The pictures that pages show, and a page for each."""
    found = {}
    for page in {*pages(), ROOT / "README.md"}:
        for match in _USED.finditer(page.read_text()):
            target = next(one for one in match.groups() if one)
            if "://" not in target:
                found[(page.parent / target).resolve()] = name_of(page)
    return found


def test_every_picture_that_a_page_shows_exists() -> None:
    assert {path: page for path, page in _used().items() if not path.exists()} == {}


def test_every_picture_is_shown_and_drawn_by_the_command() -> None:
    drawn = set(re.findall(r'Shot\("([\w-]+)"', (ROOT / "tools" / "screenshots.py").read_text()))
    assert {path.stem for path in IMAGES.iterdir()} == drawn
    assert {path for path in _used() if path.parent == IMAGES} == set(IMAGES.iterdir())
