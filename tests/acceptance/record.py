"""What a run has found: gathered while it goes on, kept in a file, read by the page."""

import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from acceptance.suites import SUITES
from acceptance.trial import FIGURES, SEED
from holdfast._install.postgres.installation import EMBEDDED_VERSION, binaries

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("results.json")


@dataclass
class Found:
    """Of one trial: all its cases that passed together."""

    seed: int
    commit: str
    cases: int = 0
    seconds: float = 0.0
    figures: list[str] = field(default_factory=list)
    skipped: str = ""
    failed: str = ""
    """The test that failed."""


@dataclass
class Run:
    """Where and when, and what came of it."""

    at: str
    machine: str
    versions: str
    trials: dict[str, Found] = field(default_factory=dict)

    @classmethod
    def now(cls) -> "Run":
        return cls(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", machine(), versions())

    @classmethod
    def read(cls) -> "Run | None":
        if not RESULTS.exists():
            return None
        kept = json.loads(RESULTS.read_text())
        return cls(**kept | {"trials": {name: Found(**found) for name, found in kept["trials"].items()}})

    def write(self) -> None:
        kept = asdict(self) | {"trials": dict(sorted((name, asdict(f)) for name, f in self.trials.items()))}
        RESULTS.write_text(json.dumps(kept, indent=2) + "\n")


def trial_of(nodeid: str) -> str:
    """The name of the trial that a test is, or is a case or part of."""
    for suite in SUITES:
        if nodeid.startswith(suite.files):
            return suite.path
    return nodeid.partition("[")[0]


class Recorder:
    """Plugin of the process that hands out the tests. Says and keeps what each trial finds when it ends."""

    def __init__(self, run: Run, replay: str, keep: Callable[[Run], None]) -> None:
        self.run = run
        self.over: set[str] = set()
        self.failed: set[str] = set()
        self._found: dict[str, Found] = {}
        self._open: Counter[str] = Counter()
        """By trial, how many of its tests have not ended."""
        self._replay = replay
        self._keep = keep
        self._commit = commit()
        self._config: pytest.Config | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Each process collects the same, also one that replaces another."""
        self._open = self._open or Counter(map(trial_of, ids))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._open = self._open or Counter(trial_of(item.nodeid) for item in session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = trial_of(report.nodeid)
        found = self._found.setdefault(name, Found(SEED, self._commit))
        if report.failed:
            self.failed.add(name)
            found.failed = report.nodeid
            test = report.nodeid.rpartition("::")[2].partition("[")[0]
            self._say(f"FAILED {report.nodeid}, seed {SEED}. Again: {self._replay.format(test=test)}")
        elif report.when == "call" or (report.when == "setup" and report.skipped):
            self._take(report, found)
        if report.when == "teardown":
            _count(report, found)
            self._open[name] -= 1
            if not self._open[name]:
                self._end(name, found)

    def pytest_sessionfinish(self) -> None:
        """A test that ended its process has no report of its end."""
        for name in self.failed - self.over:
            self._end(name, self._found[name])

    def _end(self, name: str, found: Found) -> None:
        self.over.add(name)
        self.run.trials[name] = found
        self._keep(self.run)
        self._say(f"[{len(self.over)} of {len(self._open)} trials, {len(self.failed)} failed]")

    def _take(self, report: pytest.TestReport, found: Found) -> None:
        properties = report.user_properties
        told = [str(value) for name, value in properties if name == FIGURES]
        found.cases += report.passed
        found.seconds = round(found.seconds + report.duration, 1)
        found.figures += told
        if report.skipped:
            found.skipped = _reason(report)
        if "/acceptance/" in report.nodeid:
            figures = "; ".join(told) or found.skipped or "holds"
            name = report.nodeid.removeprefix("tests/acceptance/")
            self._say(f"{name}, seed {SEED}, {report.duration:.0f} s: {figures}")

    def _say(self, line: str) -> None:
        if self._config is not None:
            terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
            terminal.write_line(line)


def _count(report: pytest.TestReport, found: Found) -> None:
    """What the tests of calls at the same time have played; they say so when they are over."""
    played = sum(int(str(value)) for name, value in report.user_properties if name == "schedules")
    if played:
        before = int(found.figures.pop().split()[0]) if found.figures else 0
        found.figures.append(f"{before + played} schedules of calls at the same time")


def _reason(report: pytest.TestReport) -> str:
    told: Any = report.longrepr
    return str(told[2] if isinstance(told, tuple) else told).removeprefix("Skipped: ")


def commit() -> str:
    """Of the code that is tried. The page and its figures may lie behind it."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        changed = _git("status", "--porcelain", "--", "src", "tests", ":!tests/acceptance/results.json")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head} and changes" if changed else head


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def machine() -> str:
    names = [line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    processor = names[0] if names else platform.machine()
    system = f"{platform.system()} {platform.release()}"
    busy = f"load average {os.getloadavg()[0]:.0f}"  # before the trials add to it
    return f"{os.cpu_count()} cores of {processor}, {memory:.0f} GiB, {system}, {busy}"


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def versions() -> str:
    version = int(os.environ.get("HOLDFAST_TEST_PG", EMBEDDED_VERSION))
    command = [str(binaries(version) / "postgres"), "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    server = printed.strip().rpartition(" ")[2]
    parts: Mapping[str, str] = {
        "Holdfast": holdfast.__version__,
        "PostgreSQL": server,
        "Python": platform.python_version(),
        "psycopg": psycopg.__version__,
    }
    return ", ".join(f"{name} {number}" for name, number in parts.items())
