"""The benchmark of isolation runs. What it measures is judged on a quiet machine, not here."""

import subprocess
import sys

import pytest

from support.documents import ROOT


@pytest.mark.full
def test_a_process_of_its_own_can_be_measured() -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.isolation",
        "--count",
        "50",
        "--rounds",
        "3",
        "--concurrency",
        "1",
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    verdicts = [line for line in ran.stdout.splitlines() if line.endswith(("holds", "MISSED"))]
    assert len(verdicts) == 2, ran.stdout + ran.stderr
    assert ran.returncode == any(line.endswith("MISSED") for line in verdicts)
