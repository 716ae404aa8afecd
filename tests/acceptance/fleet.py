"""Workers as processes of their own, which a test starts, kills, stops and continues."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID

from acceptance.waiting import wait_for
from acceptance.witness import Witness

HOLDFAST = Path(sys.executable).with_name("holdfast")
TESTS = Path(__file__).parents[1]

Settings = Mapping[str, object]


class WorkerProcess:
    """One `holdfast worker`, with its log."""

    def __init__(self, name: str, log: Path, environment: dict[str, str], processes: int) -> None:
        self.name = name
        self.processes = processes
        self.killed_at: float | None = None
        self._log = log
        self._ready = False
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [HOLDFAST, "worker", "acceptance.application:app", f"--processes={processes}"],
                cwd=TESTS,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=stderr,
                stderr=stderr,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self.killed_at = monotonic()
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float = 60) -> int:
        """The exit code; negative for a signal."""
        return self._process.wait(seconds)

    @property
    def ready(self) -> bool:
        self._ready = self._ready or len(self.logged("worker_started")) >= self.processes
        return self._ready

    def wait_until_ready(self) -> None:
        wait_for(f"{self.name} to start", lambda: self.ready or not self.running)
        assert self.ready, self._log.read_text()

    def logged(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """The lines of its log about this event, with these fields."""
        about = f'"event": "{event}"'
        # A worker that is killed may leave half a line.
        whole = (line for line in self._log.read_text().splitlines() if about in line and line[-1] == "}")
        return [line for line in map(json.loads, whole) if fields.items() <= line.items()]

    def last_words(self) -> str:
        """How it ended, and the end of its log."""
        return f"{self.name} ended with {self._process.poll()}:\n{self._log.read_text()[-3000:]}"

    def close(self) -> None:
        if self.running:
            self._process.kill()
        self._process.wait()
        assert self._process.stdin
        self._process.stdin.close()


class Fleet:
    """All the workers of one test. Each start has a name of its own."""

    def __init__(self, url: str, witness: Witness, directory: Path) -> None:
        self.all: list[WorkerProcess] = []
        self._url = url
        self._witness = witness
        self._directory = directory
        self._numbers = count(1)

    @property
    def running(self) -> list[WorkerProcess]:
        return [worker for worker in self.all if worker.running]

    @property
    def ready(self) -> list[WorkerProcess]:
        return [worker for worker in self.running if worker.ready]

    def start(self, count: int, settings: Settings | None = None, processes: int = 1) -> list[WorkerProcess]:
        """Start this many workers, with settings by variable name, and wait until they claim."""
        started = [self.launch(settings, processes) for _ in range(count)]
        for worker in started:
            worker.wait_until_ready()
        return started

    def start_one(self, settings: Settings | None = None, processes: int = 1) -> WorkerProcess:
        (worker,) = self.start(1, settings, processes)
        return worker

    def launch(self, settings: Settings | None = None, processes: int = 1) -> WorkerProcess:
        """Start one, and do not wait."""
        name = f"w{next(self._numbers)}"
        environment = os.environ | {
            "DATABASE_URL": self._url,
            "WORKER_ID": name,
            "WORKER_QUEUES": "acceptance",
            "HOLDFAST_LOG_FORMAT": "json",
            "HOLDFAST_LOG_LEVEL": "debug",
            "WITNESS": str(self._witness.path),
        }
        environment |= {variable: str(value) for variable, value in (settings or {}).items()}
        worker = WorkerProcess(name, self._directory / f"{name}.log", environment, processes)
        self.all.append(worker)
        return worker

    def by_worker_id(self, worker_id: str) -> WorkerProcess:
        """A worker's id is its name, its process and chance."""
        name = worker_id.split("-", 1)[0]
        return next(worker for worker in self.all if worker.name == name)

    def accepted(self) -> Counter[UUID]:
        """How often the workers were told of each task that its success stands."""
        ended = (line for worker in self.all for line in worker.logged("task_ended", status="succeeded"))
        return Counter(UUID(line["task_id"]) for line in ended)

    def close(self) -> None:
        for worker in self.all:
            worker.close()
