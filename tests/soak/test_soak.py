"""A soak of a few seconds, and the verdicts about growth."""

from pathlib import Path

import pytest

from soak import run
from soak.drift import Samples, compare
from soak.report import Report
from soak.run import Soak


@pytest.mark.full
def test_a_round_of_everything_at_once_breaks_no_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "ROUND_SECONDS", (4.0, 4.0))
    monkeypatch.setattr(run, "CRASH_EVERY", 2)
    kept: list[int] = []

    report = Soak(tmp_path, 5 / 3600, print, lambda report: kept.append(report.counts["rounds"])).run()

    assert report.problems == []
    assert kept == list(range(1, report.counts["rounds"] + 1))
    done = {name for name, times in report.counts.items() if times}
    assert done >= {
        *("workers killed", "workers restarted", "dispatchers killed", "restarts of the server"),
        *("tasks", "runs with signals and joins", "messages sent", "pages read"),
    }
    report.write(tmp_path / "report.json")
    assert Report.read(tmp_path / "report.json") == report


@pytest.mark.parametrize(
    ("name", "last", "verdict"),
    [
        ("all tables [MB]", 14.0, "growing"),
        ("all tables [MB]", 12.9, "larger"),
        ("all tables [MB]", 11.4, "flat"),  # less than 15 %
        ("tasks kept [rows]", 1000.0, "larger"),
        ("lanes []", 11.9, "flat"),  # two more or less
        ("table comms.email_message [MB]", 14.0, "growing: the history of messages is kept for ever"),
        ("load average []", 100.0, "not judged"),
    ],
)
def test_a_figure_is_judged_by_a_share_and_a_fixed_amount(name: str, last: float, verdict: str) -> None:
    warming_up, steady = [(at, 1000.0) for at in range(10)], [(at, 10.0) for at in range(10, 80)]
    samples: Samples = {name: [*warming_up, *steady, *((at, last) for at in range(80, 100))]}

    (found,) = compare(samples, 0, 100)

    assert (found.quarters, found.verdict) == ([10.0, 10.0, 10.0, last], verdict)


def test_a_figure_that_rises_all_the_time_is_not_called_flat() -> None:
    samples: Samples = {"all tables [MB]": [(at, at / 40) for at in range(100)]}
    (found,) = compare(samples, 0, 100)
    assert found.verdict == "rising in each quarter"


def test_the_page_tells_of_broken_rules_and_of_a_run_that_ended_early() -> None:
    report = Report("now", 1, 7, "abc", "", "", broken=["a task is lost"], ended_early="round 3: no server")
    assert not report.passed
    assert "Broken rules: a task is lost; ended early in round 3: no server." in report.section()
