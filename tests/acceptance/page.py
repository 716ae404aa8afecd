"""docs/reliability.md, what is promised and held; beside this file results.md, what each trial found."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
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
RESULTS = HERE / "results.md"
TEMPLATE = HERE / "template.md"
RESULTS_TEMPLATE = HERE / "results_template.md"

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
    return re.findall(r"\{\{tried (\w+)\}\}", TEMPLATE.read_text())


def write() -> None:
    for page, template in ((PAGE, TEMPLATE), (RESULTS, RESULTS_TEMPLATE)):
        page.write_text(render(template, Run.read()))


def render(template: Path, run: Run | None) -> str:
    every = trials()
    found = run.trials if run else {}

    parts: dict[str, Callable[[str], str]] = {
        "run": lambda _: _about(run) if run else "There was no run yet.",
        "tried": lambda promise: _tried([trial for trial in every if promise in trial.promises], found),
        "trials": lambda promise: _list(trial for trial in every if promise in trial.promises),
        "found": lambda _: _table([trial for trial in every if not trial.is_suite], found),
        "suites": lambda _: _table([trial for trial in every if trial.is_suite], found),
        "soak": lambda what: soak_report.summary() if what else soak_report.section(),
        "planted": lambda what: _caught() if what else _planted(),
    }
    return _PLACE.sub(lambda place: parts[place[1]](place[2] or ""), template.read_text())


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


def _tried(shown: Sequence[Trial], found: dict[str, Found]) -> str:
    """How many trials, and whether the last run of each passed."""
    last = [found[trial.name] for trial in shown if trial.name in found]
    failed = [one.failed for one in last if one.failed]
    verdict = f"failed: {', '.join(failed)}" if failed else "all held"
    minutes = sum(one.seconds for one in last) / 60
    return f"{len(shown)} trials; {len(last)} of them took {minutes:.0f} minutes in the last run, {verdict}."


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


def _caught() -> str:
    if not PLANTED.exists():
        return "No results yet."
    bugs: list[dict[str, Any]] = json.loads(PLANTED.read_text())
    caught = sum(bool(bug["caught_by"]) for bug in bugs)
    told = f"Bugs were put into the code, one at a time: {caught} of {len(bugs)} were caught."
    if new := len(BUGS) - len(bugs):
        told += f" {new} more are written and wait for the next complete run."
    return f"A test that cannot fail proves nothing.\n{told}"


def _planted() -> str:
    if not PLANTED.exists():
        return "No results yet."
    bugs: list[dict[str, Any]] = json.loads(PLANTED.read_text())
    rows = [
        f"| {bug['bug']} | `{bug['file']}` | {_catcher(bug['caught_by'])} | {bug['seconds']:.1f} |"
        for bug in bugs
    ]
    head = [_caught(), "", "| bug | in | caught by | after s |"]
    return "\n".join([*head, "|---|---|---|---|", *rows])


def _catcher(test: str | None) -> str:
    return f"`{test}`" if test else "no test"
