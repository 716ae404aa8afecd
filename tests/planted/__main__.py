"""Plants each bug in a copy of the tree, runs the tests that have to notice it, and writes down which did.

`make planted`; ARGS="--only TEXT" for some of them, ARGS=--new for those that were never looked for, QUICK=1
for a handful. The same tests have to pass first without any bug.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from random import Random
from threading import Lock

from planted.bug import ROOT, Bug
from planted.bugs import BUGS
from planted.field import Field, Finding

RESULTS = Path(__file__).with_name("results.json")
HANDFUL = 4
LONGEST_TEST_SECONDS = 30  # a bug that makes a test wait for ever is noticed by that

Selection = dict[Bug, list[str]]
"""Of each bug, what to run."""


def main() -> int:
    asked = _arguments()
    known = {result["bug"] for result in _results()}
    wanted = [bug for bug in BUGS if asked.only in bug.name and not (asked.new and bug.name in known)]
    selection = _handful(wanted, asked.seed) if asked.quick else {bug: bug.tests.split() for bug in wanted}
    with tempfile.TemporaryDirectory(prefix="planted-") as place:
        fields = [Field(Path(place) / str(n), ROOT) for n in range(asked.jobs)]
        if not _pass_without_bugs(fields[0], selection.values(), asked.jobs):
            return 1
        findings = _plant(fields, selection, keep=not asked.quick)
    survived = [bug for bug, finding in findings.items() if not finding.caught_by]
    print(f"{len(findings) - len(survived)} of {len(findings)} bugs were caught")
    return 1 if survived else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="planted", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="bugs whose name has this text")
    parser.add_argument("--new", action="store_true", help="bugs that were never looked for")
    parser.add_argument("--quick", action="store_true", help="a handful, which the seed picks")
    parser.add_argument("--seed", type=int, default=Random().randrange(10**6))  # noqa: S311 - no secret
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    return parser.parse_args()


def _handful(bugs: list[Bug], seed: int) -> Selection:
    """A few bugs, each with the test that caught it in the last complete run.

    With all parameters of that test, because their names may have changed since then.
    """
    print(f"seed {seed}")
    caught_by = {
        result["bug"]: str(result["caught_by"]).partition("[")[0]
        for result in _results()
        if result["caught_by"]
    }
    known = [bug for bug in bugs if bug.name in caught_by]
    picked = Random(seed).sample(known, min(HANDFUL, len(known)))  # noqa: S311 - no secret
    return {bug: [caught_by[bug.name]] for bug in picked}


def _pass_without_bugs(field: Field, selected: Iterable[list[str]], jobs: int) -> bool:
    tests = sorted({test for tests in selected for test in tests})
    finding = field.look(tests, "-n", str(jobs))
    print(f"without a bug: {finding.told}, {finding.seconds:.0f} s", flush=True)
    return finding.passed


def _plant(fields: list[Field], selection: Selection, *, keep: bool) -> dict[Bug, Finding]:
    free: SimpleQueue[Field] = SimpleQueue()
    writing = Lock()
    for field in fields:
        free.put(field)

    def plant(bug: Bug) -> Finding:
        field = free.get()
        try:
            finding = _look_for(bug, selection[bug], field)
        finally:
            free.put(field)
        print(f"{finding.seconds:5.1f} s  {bug.name}: {finding.told}", flush=True)
        if keep:
            with writing:
                _write(bug, finding)
        return finding

    with ThreadPoolExecutor(len(fields)) as pool:
        return dict(zip(selection, pool.map(plant, selection), strict=True))


def _look_for(bug: Bug, tests: list[str], field: Field) -> Finding:
    limit = f"--timeout={LONGEST_TEST_SECONDS}"
    with field.planted(bug):
        finding = field.look(tests, "-x", limit)
        if finding.passed and tests != bug.tests.split():
            # Since the last complete run, other code may stop this bug before that test notices it.
            finding = field.look(bug.tests.split(), "-x", limit)
    if finding.by_timeout and finding.caught_by:
        # A machine that is too busy is no bug: in the same time, the test has to pass without it.
        without = field.look([finding.caught_by], limit)
        if not without.passed:
            return replace(
                finding, caught_by=None, told=f"took too long, and does so without a bug: {without.told}"
            )
    return finding


def _results() -> list[dict[str, object]]:
    return list(json.loads(RESULTS.read_text())) if RESULTS.exists() else []


def _write(bug: Bug, finding: Finding) -> None:
    """The others keep what was found before."""
    known = {result["bug"]: result for result in _results()}
    known[bug.name] = {
        "bug": bug.name,
        "file": bug.path,
        "caught_by": finding.caught_by,
        "seconds": round(finding.seconds, 1),
    }
    results = [known[bug.name] for bug in BUGS if bug.name in known]
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
