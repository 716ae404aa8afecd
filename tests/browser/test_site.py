"""The site of the documentation, opened from the disk without a network: its search finds pages."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from support.documents import DOCS, ROOT

SLOW = 30_000
pytestmark = [pytest.mark.full, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As make docs builds it."""
    target = tmp_path_factory.mktemp("pages") / "site"
    built = subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", target],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return target


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """One that cannot reach anything but files, and must not try."""
    wanted: list[str] = []
    context = browser.new_context(offline=True)
    opened = context.new_page()
    opened.on("request", lambda request: wanted.append(request.url))
    yield opened
    context.close()
    assert [url for url in wanted if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


@pytest.mark.parametrize(
    ("words", "found"),
    [("debounce", "unique-and-debounced-tasks.html"), ("Celery", "migrate-from-celery.html")],
)
def test_a_search_in_files_finds_a_page(site: Path, page: Page, words: str, found: str) -> None:
    page.goto(f"file://{site}/index.html")
    page.get_by_placeholder("Search").click()
    page.keyboard.type(words)
    results = page.locator(".md-search-result__link")
    expect(results.first).to_be_visible(timeout=SLOW)
    links = results.evaluate_all("links => links.map(link => link.href)")
    assert any(found in link for link in links)
    page.goto(next(link for link in links if found in link))
    expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"<(?:script|img|iframe)[^>]+src=\"?https?:|<link[^>]+href=\"?https?:")
    kept = [path for path in site.rglob("*.html") if not loads.search(path.read_text())]
    assert len(kept) == len(list(site.rglob("*.html"))) >= len(list(DOCS.rglob("*.md")))
