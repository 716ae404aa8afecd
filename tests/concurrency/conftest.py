"""For tests of calls at the same time."""

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report how many schedules were run: one that was not run proves nothing."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    properties = [each for report in reports for each in getattr(report, "user_properties", [])]
    if played := sum(count for name, count in properties if name == "schedules"):
        terminalreporter.write_line(f"{played} schedules of calls at the same time")
