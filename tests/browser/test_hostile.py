"""A hundred hostile strings, on every page that shows them, in a browser."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from holdfast.server.pages.page import NAVIGATION
from support.hostile_strings import STRINGS
from support.hostile_texts import Staged, stage
from support.web import Web

OpenPage = Callable[..., Page]

FULL = os.environ.get("HOLDFAST_ACCEPTANCE") == "full"
STAGED = STRINGS if FULL else STRINGS[::5]
SOME = slice(None) if FULL else slice(0, 1)
PATHS = [path for path, _ in NAVIGATION]

# Elements, event handlers and script URLs in the page that the templates do not contain.
ALIVE = """() => {
  const strange = "iframe,object,embed,math,video,base,style,marquee,template,noscript,[style],[srcdoc]";
  const found = [...document.querySelectorAll(strange)].map((one) => one.outerHTML.slice(0, 200));
  for (const one of document.querySelectorAll("*")) {
    for (const { name, value } of one.attributes) {
      if (name.startsWith("on")) found.push(`${one.nodeName} ${name}`);
      const leads = ["href", "src", "action"].includes(name);
      if (leads && !/^(\\/(?!\\/)|#)/.test(value)) found.push(`${name} ${value}`);
    }
  }
  if (document.scripts.length !== 1) found.push(`${document.scripts.length} scripts`);
  if (document.querySelectorAll("#live-part, #main").length !== 2) found.push("an id of ours twice");
  if (window.hacked !== undefined) found.push("a script ran");
  return found;
}"""


@pytest.fixture(scope="module")
def staged(web: Web) -> list[Staged]:
    return [stage(web.engine, text) for text in STAGED]


def visit(page: Page, path: str) -> list[Any]:
    """Also after an update from the stream, which enters the page in another way."""
    page.goto(path)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.wait_for_function("() => Number(document.documentElement.dataset.live ?? 0) > 0")
    return [f"{path}: {one}" for one in page.evaluate(ALIVE)]


@pytest.mark.timeout(900)
def test_no_hostile_text_becomes_markup_or_script(
    open_page: OpenPage, staged: list[Staged], pictures: Path
) -> None:
    page = open_page()
    found = []
    for path in PATHS:
        found += visit(page, path)
        page.screenshot(path=pictures / f"hostile-{path.strip('/') or 'overview'}.png")
    for one in staged[SOME]:
        for path in one.paths:
            found += visit(page, path)
    assert found == []


@pytest.mark.timeout(600)
def test_no_hostile_value_becomes_markup_or_script_when_revealed(
    open_page: OpenPage, staged: list[Staged]
) -> None:
    page = open_page(scopes=("operate",))
    found = []
    for one in staged[SOME]:
        page.goto(one.paths[0])
        page.get_by_text("Show values…").click()
        page.locator("details[open]").get_by_label("Reason").fill("<script>window.hacked=1</script>")
        page.get_by_role("button", name="Show values").click()
        page.get_by_text("Values are shown.").wait_for()
        found += page.evaluate(ALIVE)
    assert found == []
