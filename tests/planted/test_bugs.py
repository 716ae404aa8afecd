"""The bugs that `make planted` plants still fit the code, and all of them were caught."""

import json
from pathlib import Path

import pytest

from planted.__main__ import RESULTS
from planted.bug import ROOT, Bug, DoesNotApply
from planted.bugs import BUGS
from planted.field import judged
from support.named_tests import named_tests

LEAST = 20


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_applies_to_exactly_one_place(bug: Bug) -> None:
    text = (ROOT / bug.path).read_text()
    assert bug.planted(text) != text


def test_a_bug_that_no_longer_applies_says_so() -> None:
    bug = Bug("it is upside down", "sql/rights.sql", "up", "down", "tests")
    for text in ("none", "up and up"):
        with pytest.raises(
            DoesNotApply, match=r"src/holdfast/sql/rights.sql has \d places.*it is upside down"
        ):
            bug.planted(text)


def test_every_bug_has_its_own_name_and_there_are_enough() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= LEAST


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_tests_that_have_to_notice_a_bug_exist(bug: Bug) -> None:
    for test in bug.tests.split():
        file, _, name = test.partition("::")
        assert name in named_tests(ROOT / file) if name else (ROOT / file).exists(), test


def test_every_bug_that_was_looked_for_was_caught_by_a_test_that_exists() -> None:
    results = {result["bug"]: result for result in json.loads(RESULTS.read_text())}
    looked_for = [bug for bug in BUGS if bug.name in results]
    assert list(results) == [bug.name for bug in looked_for], "run make planted"
    for bug in looked_for:
        result = results[bug.name]
        assert result["file"] == bug.path
        assert result["caught_by"], f"nothing noticed: {bug.name}"
        file, _, test = result["caught_by"].partition("::")
        assert test.partition("[")[0] in named_tests(Path(ROOT / file)), result["caught_by"]


@pytest.mark.parametrize(
    ("phase", "message", "caught"),
    [
        ("call", "AssertionError: assert ['held'] == ['lost']", True),
        ("call", "Failed: Timeout (>30.0s) from pytest-timeout.", True),
        ("call", "psycopg.errors.UniqueViolation: duplicate key value", True),
        ("teardown", "AssertionError: the worker has left tasks behind", True),
        ("call", "psycopg.errors.SyntaxError: syntax error at or near", False),
        ("call", "NameError: name 'x' is not defined", False),
        ("setup", "psycopg.errors.UndefinedColumn: column x does not exist", False),
        ("collect", "ImportError: cannot import name 'x'", False),
    ],
)
def test_what_is_only_broken_does_not_count_as_caught(phase: str, message: str, caught: bool) -> None:
    finding = judged(1.0, [{"test": "tests/x.py::test_y", "phase": phase, "message": message}], "")
    assert (finding.caught_by == "tests/x.py::test_y") is caught
    assert finding.by_timeout is ("Timeout" in message)
    assert not finding.passed


def test_a_run_that_tells_nothing_caught_nothing() -> None:
    finding = judged(1.0, [], "no tests ran")
    assert (finding.caught_by, finding.passed) == (None, False)
    assert "no tests ran" in finding.told
