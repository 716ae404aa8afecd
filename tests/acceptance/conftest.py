"""For tests of the whole: real processes, real signals, and a durable server of the test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acceptance.ground import VERSION, Ground, durable_ground
from acceptance.trial import LEVEL, belongs, record_with

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is too long for the everyday suite, or not part of the quick run."""
    others = [item for item in items if HERE in item.path.parents and not _is_wanted(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def _is_wanted(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("trial")
    return belongs(mark) if mark else LEVEL != "quick"


@pytest.fixture(autouse=True)
def _record(record_property: Callable[[str, object], None]) -> None:
    record_with(record_property)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with durable_ground(tmp_path, VERSION) as running:
        yield running
