"""docs/reference/worker.md names every event that a worker logs, and every metric that it serves."""

import re

from holdfast._worker.metrics import Collector, Metrics
from support.documents import REFERENCE, ROOT, rows, sections

_LOGGED = re.compile(r"log(?:\([^)]*\))?\.(debug|info|warning|error|exception|critical)\(\s*\"(\w+)\"")
_EITHER = re.compile(r"write = \S+\.(\w+) if .+ else \S+\.(\w+)\s+write\(\s*\"(\w+)\"")
_LEVELS = {"exception": "error"}


def _sources() -> str:
    packages = (
        ROOT / "src/holdfast" / name
        for name in ("_worker", "isolation", "messages", "processes", "_connections")
    )
    return "\n".join(path.read_text() for package in packages for path in sorted(package.glob("*.py")))


def _logged() -> set[tuple[str, str]]:
    """Levels and events."""
    text = _sources()
    found = {(_LEVELS.get(level, level), event) for level, event in _LOGGED.findall(text)}
    return found | {(level, event) for *levels, event in _EITHER.findall(text) for level in levels}


def _described(section: str) -> dict[str, list[str]]:
    return {cells[0]: cells[1:] for cells in rows(sections(REFERENCE / "worker.md")[section])}


def test_every_event_is_described() -> None:
    assert _described("Logs").keys() == {event for _, event in _logged()}


def test_the_level_of_an_event_is_one_that_it_is_logged_at() -> None:
    assert {(cells[0], event) for event, cells in _described("Logs").items()} <= _logged()


def test_every_metric_is_described() -> None:
    served = {family.name: family.type for family in Collector(Metrics()).collect()}
    assert {name: cells[0] for name, cells in _described("Metrics").items()} == served
