"""Runs the tests that have just failed once more, one after the other, and names those that pass now.

A machine that is busy can make a test fail that is right. More than a few failures are not the machine's.
"""

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(__file__).resolve().parents[1] / ".pytest_cache" / "v" / "cache" / "lastfailed"
MOST = 8


def main() -> int:
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests failed; only up to {MOST} are run again", flush=True)
        return 1
    print("These failed beside others, and run again alone:", *failed, sep="\n  ", flush=True)
    arguments = ["-m", "pytest", "-n0", "--last-failed", "--last-failed-no-failures=none"]
    return subprocess.run([sys.executable, *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
