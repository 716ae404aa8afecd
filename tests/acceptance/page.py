"""docs/reliability.md: what is promised, which trials hold us to it, and what the last run has found."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from acceptance.record import ROOT, Found, Run
from acceptance.suites import SUITES
from planted.bugs import BUGS
from soak import report as soak_report

PAGE = ROOT / "docs" / "reliability.md"
PLANTED = ROOT / "tests" / "planted" / "results.json"
HERE = Path(__file__).parent
TEMPLATE = HERE / "template.md"

MAX_FIGURES = 6

_PLACE = re.compile(r"\{\{(\w+)(?: (\w+))?\}\}")


@dataclass(frozen=True)
class Trial:
    name: str
    promises: tuple[str, ...]
    title: str
    files: tuple[str, ...]

    @property
    def is_suite(self) -> bool:
        return self.name in self.files


def trials() -> list[Trial]:
    """All that there are, as the code has them."""
    return [*_own(), *(Trial(suite.path, suite.promises, suite.title, suite.files) for suite in SUITES)]


def _own() -> Iterator[Trial]:
    for path in sorted(HERE.glob("test_*.py")):
        module = import_module(f"acceptance.{path.stem}")
        file = str(path.relative_to(ROOT))
        for name, test in vars(module).items():
            marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "trial"]
            if name.startswith("test_") and marks:
                title = name.removeprefix("test_").replace("_", " ")
                yield Trial(f"{file}::{name}", marks[0].args, title, (file,))


def promises() -> list[str]:
    return re.findall(r"\{\{trials (\w+)\}\}", TEMPLATE.read_text())


def write() -> None:
    PAGE.write_text(render(Run.read()))


def render(run: Run | None) -> str:
    every = trials()
    found = run.trials if run else {}

    def part(place: re.Match[str]) -> str:
        match place[1]:
            case "run":
                return _about(run) if run else "There was no run yet."
            case "trials":
                return _list(trial for trial in every if place[2] in trial.promises)
            case "found":
                return _table([trial for trial in every if not trial.is_suite], found)
            case "soak":
                return soak_report.section()
            case "suites":
                return _table([trial for trial in every if trial.is_suite], found)
        return _planted()

    return _PLACE.sub(part, TEMPLATE.read_text())


def _about(run: Run) -> str:
    seeds = _listed(found.seed for found in run.trials.values())
    commits = _listed(found.commit for found in run.trials.values())
    minutes = sum(found.seconds for found in run.trials.values()) / 60
    took = f"{len(run.trials)} trials of {minutes:.0f} minutes in all, {_passed(run)}"
    return f"Last run: {run.at}, {took}, seed {seeds}, commit {commits}. {run.versions}. {run.machine}."


def _passed(run: Run) -> str:
    failed = [found for found in run.trials.values() if found.failed]
    skipped = [found for found in run.trials.values() if not found.failed and not found.cases]
    told = [f"{len(some)} {how}" for some, how in ((failed, "failed"), (skipped, "skipped")) if some]
    return " and ".join(told) or "all passed"


def _listed(values: Iterator[Any]) -> str:
    return ", ".join(f"`{value}`" for value in sorted(set(values)))


def _list(shown: Iterator[Trial]) -> str:
    return "\n".join(f"- {trial.title} ({', '.join(f'`{file}`' for file in trial.files)})" for trial in shown)


def _table(shown: Sequence[Trial], found: dict[str, Found]) -> str:
    rows = [f"| {trial.title} | {_figures(found.get(trial.name))} |" for trial in shown]
    return "\n".join(["| trial | what it found |", "|---|---|", *rows])


def _figures(found: Found | None) -> str:
    if found is None:
        return "not run yet"
    if found.failed:
        return f"**failed** with seed {found.seed}: `{found.failed.rpartition('::')[2]}`"
    if not found.cases:
        return f"skipped: {found.skipped}"
    told = [f"{found.cases} cases"] if found.cases > 1 else []
    told += found.figures if len(found.figures) <= MAX_FIGURES else []
    return f"{'; '.join(told) or 'holds'}. {found.seconds:.0f} s".replace("|", "\\|")


def _planted() -> str:
    if not PLANTED.exists():
        return "No results yet."
    bugs: list[dict[str, Any]] = json.loads(PLANTED.read_text())
    caught = sum(bool(bug["caught_by"]) for bug in bugs)
    rows = [
        f"| {bug['bug']} | `{bug['file']}` | {_catcher(bug['caught_by'])} | {bug['seconds']:.1f} |"
        for bug in bugs
    ]
    told = f"Bugs were put into the code, one at a time: {caught} of {len(bugs)} were caught."
    if new := len(BUGS) - len(bugs):
        told += f" {new} more are written and wait for the next complete run."
    head = ["A test that cannot fail proves nothing.", told, "", "| bug | in | caught by | after s |"]
    return "\n".join([*head, "|---|---|---|---|", *rows])


def _catcher(test: str | None) -> str:
    return f"`{test}`" if test else "no test"
