"""docs/reference/health.md lists every check there is."""

import re

from holdfast._install.schema import Sources
from holdfast.server.pages.health_links import PAGES
from support.documents import DOCS, REFERENCE, rows


def test_every_check_is_described() -> None:
    pieces = [piece for part in [Sources().core, *Sources().units] for piece in part.of("functions")]
    functions = "".join(piece.sql for piece in pieces).split("create or replace function ")
    checked = [text for text in functions if text.startswith("queues.health_of_")]
    assert len(checked) == 11
    written = {name for text in checked for name in _checks(text)}
    assert {cells[0] for cells in rows((REFERENCE / "health.md").read_text())} == written


def _checks(source: str) -> set[str]:
    """A line of health begins with its name, or with a choice of names."""
    firsts = re.findall(r"(?:select|row\(|values)\s*\(?'(\w+)',\s", source)
    chosen = re.findall(r"'(\w+_schedule|delay_p\d+|\w+_supervisor|orphaned_process)'", source)
    return {*firsts, *chosen}


def test_every_check_has_a_page_of_the_dashboard_or_is_known_to_have_none() -> None:
    assert set(PAGES) == {cells[0] for cells in rows((REFERENCE / "health.md").read_text())}


def test_the_page_about_symptoms_names_only_what_the_reference_describes() -> None:
    page = (DOCS / "howto" / "troubleshoot.md").read_text()
    checks = {cells[0] for cells in rows((REFERENCE / "health.md").read_text())}
    named = {name for text in re.findall(r"health: ([^|]+)", page) for name in re.findall(r"`(\w+)`", text)}
    assert named
    assert named - checks == set()
    described = "".join(path.read_text() for path in REFERENCE.glob("*.md"))
    words = set(re.findall(r"`([a-z]+(?:_[a-z]+)+|HOLDFAST_\w+|WORKER_\w+)`", page))
    assert {word for word in words if f"`{word}`" not in described} == set()
