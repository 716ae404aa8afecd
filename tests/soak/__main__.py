"""`make soak HOURS=n`: everything at once for hours, and whether anything grows, is lost or happens twice."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

DESCRIPTION = "Run everything at once under faults for hours. Report what grows, is lost or happens twice."


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the output of the command


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=DESCRIPTION)
    parser.add_argument("--hours", type=float, default=1.0, help="how long; may be a fraction")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the figures to this file after each round"
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="put the figures on docs/reliability.md and tests/acceptance/results.md",
    )
    options = parser.parse_args()
    os.environ.setdefault("HOLDFAST_SEED", "4711")

    # Late, because they read the variable.
    from acceptance import page
    from soak.report import Report
    from soak.run import Soak

    def keep(report: Report) -> None:
        if options.json:
            report.write(options.json)

    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        report = Soak(Path(directory), options.hours, say, keep).run()
    for line in report.lines():
        say(line)
    if options.page:
        report.write()
        page.write()
        say(f"written: {page.PAGE}, {page.RESULTS} and {Report.FILE}")
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
