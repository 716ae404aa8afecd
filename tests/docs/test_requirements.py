"""tests/requirements.md: every line has tests, and every test that it names is there."""

import re

import pytest

from support.documents import ROOT, prose
from support.named_tests import named_tests

PAGE = ROOT / "tests" / "requirements.md"
LINES = {"S": 25, "R": 11, "T": 9, "W": 18}
_ROW = re.compile(r"^\| (?P<id>[A-Z]\d+) \| (?P<asks>[^|]+) \| (?P<tests>[^|]*) \|$", re.MULTILINE)


def _rows() -> list[tuple[str, str, str]]:
    return [(row["id"], row["asks"], row["tests"]) for row in _ROW.finditer(prose(PAGE.read_text()))]


def test_every_line_is_there_once_and_in_order() -> None:
    expected = [f"{group}{n}" for group, count in LINES.items() for n in range(1, count + 1)]
    assert [line for line, *_ in _rows()] == expected


@pytest.mark.parametrize(("line", "asks", "tests"), _rows(), ids=[line for line, *_ in _rows()])
def test_every_line_says_what_it_asks_and_names_tests_that_exist(line: str, asks: str, tests: str) -> None:
    assert asks.endswith("."), asks
    named = re.findall(r"`([^`]+)`", tests)
    assert named, f"{line} has no test"
    assert " ".join(f"`{test}`" for test in named) == tests
    assert len(set(named)) == len(named)
    for test in named:
        file, _, name = test.partition("::")
        assert (ROOT / file).exists(), test
        assert name in named_tests(ROOT / file), test


def test_a_test_that_does_not_exist_is_found_out() -> None:
    assert "test_that_nobody_wrote" not in named_tests(ROOT / "tests/comms/test_story.py")
    assert any("::" in name for name in named_tests(ROOT / "tests/comms/test_story.py"))
