"""docs/reliability.md and tests/acceptance/results.md are what the trials and the last run make of them."""

import re

import pytest

from acceptance import page
from acceptance.record import Run
from support.documents import ROOT


def test_both_pages_are_in_step_with_the_trials_and_the_last_run() -> None:
    for written, template in ((page.PAGE, page.TEMPLATE), (page.RESULTS, page.RESULTS_TEMPLATE)):
        assert written.read_text() == page.render(template, Run.read()), "run: make torture ARGS=--page"


def test_every_promise_has_its_trials_and_every_trial_a_promise() -> None:
    promised = page.promises()
    assert promised == [f"P{n}" for n in range(1, 12)]
    held = {name for trial in page.trials() for name in trial.promises}
    assert held == {*promised}
    assert [trial.name for trial in page.trials() if not trial.promises] == []


def test_the_last_run_names_only_trials_that_exist() -> None:
    run = Run.read()
    if run is None:
        pytest.skip("there was no run yet")
    assert run.trials.keys() - {trial.name for trial in page.trials()} == set()


def test_every_test_of_a_file_of_trials_is_one() -> None:
    known = {trial.name for trial in page.trials()}
    for path in page.HERE.glob("test_*.py"):
        text = path.read_text()
        if not re.search(r"^from acceptance\.trial import .*\btrial\b", text, re.MULTILINE):
            continue  # about something else than a promise
        for line in text.splitlines():
            name = line.removeprefix("async ").removeprefix("def ").partition("(")[0]
            if name.startswith("test_"):
                assert f"{path.relative_to(ROOT)}::{name}" in known
