"""`make torture`: all trials, two at a time, with one seed; a complete run writes docs/reliability.md."""

import argparse
import os
import random
import sys
import time

import pytest

DESCRIPTION = "Kill workers, servers and connections, and check that nothing is lost."
# More of what the everyday suite does a little of.
FURTHER = {"HOLDFAST_MODEL_EXAMPLES": "300"}
QUICK_SEED = "4711"


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a command's own output


def main() -> int:
    parser = argparse.ArgumentParser(prog="make torture", description=DESCRIPTION)
    parser.add_argument("--quick", action="store_true", help="three minutes instead of twenty")
    parser.add_argument(
        "--page", action="store_true", help="run nothing: write the page again from the last run"
    )
    parser.add_argument(
        "--keep", action="store_true", help="put the results on the page, also if the run is not complete"
    )
    options, given = parser.parse_known_args()
    if not options.page:
        _set_up(quick=options.quick)

    # Late, because they read the variables.
    from acceptance import page
    from acceptance.record import Recorder, Run
    from acceptance.suites import SUITES
    from acceptance.trial import SEED

    if options.page:
        page.write()
        return 0
    suites = [] if options.quick else [file for suite in SUITES for file in suite.files]
    paths = ["tests/acceptance", *suites]
    complete = not given and not options.quick
    kept = complete or options.keep
    known = {trial.name for trial in page.trials()}

    def keep(run: Run) -> None:
        run.trials = {name: found for name, found in run.trials.items() if name in known}
        if kept:
            run.write()

    run = Run.now() if complete else Run.read() or Run.now()
    recorder = Recorder(run, _replay(SEED, quick=options.quick), keep)
    say(f"seed {SEED}")
    began = time.monotonic()
    arguments = ["-p", "no:randomly", f"--hypothesis-seed={SEED}", "-n2", "--maxschedchunk=1", "-q", "-rN"]
    exit_code = int(pytest.main([*arguments, *given, *paths], plugins=[recorder]))
    took = time.monotonic() - began
    say(f"seed {SEED}: {len(recorder.over)} trials in {took / 60:.1f} minutes, {len(recorder.failed)} failed")
    if kept:
        page.write()
        say(f"written: {page.PAGE} and {page.RESULTS}")
    return exit_code


def _set_up(*, quick: bool) -> None:
    os.environ["HOLDFAST_ACCEPTANCE"] = "quick" if quick else "full"
    os.environ.setdefault("HOLDFAST_SEED", QUICK_SEED if quick else _any_seed())
    for variable, value in FURTHER.items():
        os.environ.setdefault(variable, value)


def _any_seed() -> str:
    return str(random.randrange(1, 100_000))  # noqa: S311 - printed, so no secret


def _replay(seed: int, *, quick: bool) -> str:
    return f"""HOLDFAST_SEED={seed} make torture {"QUICK=1 " if quick else ""}ARGS="-k {{test}}" """.strip()


if __name__ == "__main__":
    sys.exit(main())
