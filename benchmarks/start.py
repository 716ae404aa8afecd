"""`make bench-start`: how long an import, a command and the start of a worker take."""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import migrate

BIN = Path(sys.executable).parent
APPLICATION = (
    "from holdfast import App\napp = App()\n@app.task('bench.nothing')\ndef nothing() -> None: ...\n"
)

# Seconds beyond what Python itself takes to start. A machine with nothing else to do stays far below.
TARGETS = {
    "import holdfast": 0.1,
    "from holdfast import App": 1.0,
    "holdfast --version": 1.5,
    "holdfast worker": 3.0,
}


def run(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def worker(url: str, directory: Path) -> float:
    """From its start until it claims."""
    began = time.perf_counter()
    with subprocess.Popen(
        [BIN / "holdfast", "worker", "start_application:app", "--queues", "bench", "--log-format", "json"],
        env={**os.environ, "DATABASE_URL": url},
        cwd=directory,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stderr
        while b"worker_started" not in (line := running.stderr.readline()):
            assert line, "the worker ended before it had started"
        took = time.perf_counter() - began
        running.terminate()
        running.stderr.read()
    return took


def median(measure: Callable[[], float], rounds: int) -> float:
    measure()  # the first one warms the disk
    return statistics.median(measure() for _ in range(rounds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    floor = median(lambda: run(sys.executable, "-c", "pass"), rounds)
    print(f"{'python -c pass':26}  {floor:6.3f} s")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o711)  # for the account of the server to pass
        (directory / "start_application.py").write_text(APPLICATION)
        server = EmbeddedServer(directory / "home")
        migrate(url := server.start())
        measures: dict[str, Callable[[], float]] = {
            "import holdfast": lambda: run(sys.executable, "-c", "import holdfast"),
            "from holdfast import App": lambda: run(sys.executable, "-c", "from holdfast import App"),
            "holdfast --version": lambda: run(str(BIN / "holdfast"), "--version"),
            "holdfast worker": lambda: worker(url, directory),
        }
        try:
            took = {title: median(measure, rounds) - floor for title, measure in measures.items()}
        finally:
            server.stop()
    for title, seconds in took.items():
        print(f"{title:26}  {seconds:6.3f} s more, at most {TARGETS[title]:.1f}")
    return int(any(took[title] > most for title, most in TARGETS.items()))


if __name__ == "__main__":
    sys.exit(main())
