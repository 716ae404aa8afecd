"""A pytest plugin: writes down how each test or file that did not pass went wrong, one JSON object a line.

Hypothesis finds the same examples in every run, and does not look for smaller ones: that something is wrong
is enough.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings

VARIABLE = "HOLDFAST_PLANTED_REPORT"

settings.register_profile(
    "planted", derandomize=True, database=None, phases=(Phase.explicit, Phase.generate), deadline=None
)
settings.load_profile("planted")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _write(report.nodeid, report.when or "", report.longrepr)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(report.nodeid, "collect", report.longrepr)


def _write(test: str, phase: str, told: object) -> None:
    crash = getattr(told, "reprcrash", None)
    message = crash.message if crash is not None else str(told)
    with Path(os.environ[VARIABLE]).open("a") as file:
        file.write(json.dumps({"test": test, "phase": phase, "message": message}) + "\n")
