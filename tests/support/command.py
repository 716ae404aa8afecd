"""`holdfast` as a process of its own, read line by line."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HOLDFAST = Path(sys.executable).with_name("holdfast")
IGNORING_INTERRUPTS = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
"""Before a command: it starts with SIGINT ignored, as a script starts those in the background."""


class Command:
    """A running command. Its log is read as far as a test asks for."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.read: list[str] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    def logged(self, event: str, **fields: Any) -> dict[str, Any]:
        """Read on until a line says so."""
        assert self.process.stderr
        for text in self.process.stderr:
            self.read.append(text)
            line = _parsed(text)
            if line.get("event") == event and fields.items() <= line.items():
                return line
        raise AssertionError(f"{event} was never logged:\n{''.join(self.read)}")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """The exit code; negative for a signal. What was still logged is read as well."""
        assert self.process.stderr
        self.read += self.process.stderr.readlines()
        return self.process.wait()

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [line for text in self.read if (line := _parsed(text)).get("event") == event]


@contextmanager
def holdfast(*arguments: str, cwd: Path, **variables: str) -> Iterator[Command]:
    """Ended at the end of the block, with all that it started, if it is still there."""
    environment = os.environ | {"HOLDFAST_LOG_FORMAT": "json", "PYTHONUNBUFFERED": "1"} | variables
    with subprocess.Popen(
        [*IGNORING_INTERRUPTS, HOLDFAST, *arguments],
        cwd=cwd,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield Command(process)
        finally:
            if process.poll() is None:
                process.kill()


def _parsed(text: str) -> dict[str, Any]:
    return dict(json.loads(text)) if text.startswith("{") else {}
