"""A peer that is installed: its database, its producers and its workers, each in processes of their own."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import environments
from benchmarks.peers.catalog import Peer, Settings
from benchmarks.peers.cluster import Cluster
from benchmarks.peers.slots import Slots

PATIENCE = 900.0
STOPPING = 8.0


class Failure(Exception):
    """A measurement that did not come to a figure that may be believed."""


@dataclass(frozen=True)
class Contender:
    peer: Peer
    cluster: Cluster
    workshop: Path
    command: list[str]

    @property
    def name(self) -> str:
        return self.peer.name

    @property
    def template(self) -> str:
        return f"template_{self.peer.name}"

    def install(self) -> None:
        url = self.cluster.create(self.template)
        self._call(url, "install", {})

    @contextmanager
    def database(self, template: str | None = None) -> Iterator[str]:
        """A fresh one, removed afterwards so that nothing tidies it up while the next is measured."""
        name = f"bench_{self.peer.name}"
        self.cluster.create(name, template or self.template)
        try:
            yield name
        finally:
            self.cluster.drop(name)

    def ask(self, database: str, command: str, **order: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._call(self.cluster.server.url(database), command, order))
        return answer

    def fill(self, database: str, count: int) -> None:
        self.ask(database, "enqueue", mode="many" if self.peer.bulk else "one", count=count)
        with self.cluster.connect(database) as connection:
            connection.execute("vacuum analyze")

    @contextmanager
    def workers(
        self, database: str, count: int, processes: int = 1, settings: Settings | None = None
    ) -> Iterator[list["Worker"]]:
        with ExitStack() as stack:
            yield [
                stack.enter_context(
                    self._worker(database, count, f"{number}", settings or self.peer.settings)
                )
                for number in range(processes)
            ]

    @contextmanager
    def _worker(self, database: str, count: int, tag: str, settings: Settings) -> Iterator["Worker"]:
        slots = Slots(self.workshop / f"{self.peer.name}-{tag}", count)
        order = {**settings, "slots": str(slots.path), "count": count}
        said = slots.path.with_suffix(".log")
        with said.open("wb") as log:
            process = subprocess.Popen(
                self.command,
                cwd=self.peer.root,
                env=self._environment(self.cluster.server.url(database), "worker", order),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        worker = Worker(slots, process, said)
        try:
            yield worker
        finally:
            worker.stop()

    def _call(self, url: str, command: str, order: dict[str, Any]) -> str:
        done = subprocess.run(
            self.command,
            cwd=self.peer.root,
            env=self._environment(url, command, order),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
            raise Failure(f"{self.name} could not {command} and said: {said[-1]}")
        return (done.stdout.strip().splitlines() or ["null"])[-1]

    def _environment(self, url: str, command: str, order: dict[str, Any]) -> dict[str, str]:
        return {
            **os.environ,
            "BENCH_COMMAND": command,
            "BENCH_ORDER": json.dumps(order),
            "BENCH_DATABASE_URL": url,
            "BENCH_NODE_HOME": str(environments.HOME / self.name),
            "PYTHONPATH": os.pathsep.join(
                [str(self.peer.root / "src"), str(self.peer.root), os.environ.get("PYTHONPATH", "")]
            ),
            "PYTHONWARNINGS": "ignore",
        }


@dataclass(frozen=True)
class Worker:
    slots: Slots
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def check(self) -> None:
        if self.process.poll() is not None:
            raise Failure(f"a worker ended with {self.process.returncode}{self.last_words()}")

    def last_words(self) -> str:
        said = self.log.read_text(errors="replace")[-1000:].strip()
        return f" and had said:\n{said}" if said else " and had said nothing"

    def wait_until(self, happened: Callable[[], bool], seconds: float, otherwise: str) -> None:
        deadline = time.monotonic() + seconds
        while not happened():
            self.check()
            if time.monotonic() > deadline:
                begun = f"the worker had started {self.slots.started} jobs"
                raise Failure(f"{otherwise} after {seconds:.0f} s; {begun}{self.last_words()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Politely, then the whole session that it was started in."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOPPING)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
