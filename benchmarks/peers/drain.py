"""Workers run a backlog of jobs that do nothing, and every one of them is accounted for."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.peers import processes
from benchmarks.peers.cluster import Connection, number
from benchmarks.peers.contender import Contender, Failure, Worker

NEARLY_ALL = 0.985
PATIENCE = 400.0
BUSY = 0.3
"""CPU seconds in a second: a fleet that needs more is still starting."""


@dataclass(frozen=True)
class Cost:
    """CPU seconds used so far, when, and by how many jobs."""

    jobs: int
    workers: float
    postgres: float


@dataclass(frozen=True)
class Drained:
    per_second: float
    worker_micros: float
    postgres_micros: float
    resident_mb: float
    wal_bytes: float
    starts: list[int]

    def values(self) -> dict[str, float]:
        names = ("per_second", "worker_micros", "postgres_micros", "resident_mb", "wal_bytes")
        return {name: getattr(self, name) for name in names}


def drain(
    contender: Contender,
    database: str,
    count: int,
    fleet: int = 1,
    begin: Callable[[], object] | None = None,
) -> Drained:
    """Jobs a second, from the first start of a handler until the database says that nothing is left.

    Where the backlog is held back, `begin` lets it go as soon as every worker is there and has nothing to do.
    """
    with contender.cluster.connect(database) as connection:
        left = _left(contender, connection, count)
        log = contender.cluster.wal_position()
        with contender.workers(database, count, fleet) as workers:
            if begin is not None:
                _wait_until_idle(workers)
                begin()
            watch = _Watch(contender, workers, count, left)
            ended = watch.until_nothing_is_left()
            used = watch.cost()
            time.sleep(0.3)  # time enough for a job to run twice
        starts = _verified(workers, count)
    first, jobs = watch.first, count - watch.first.jobs + 1
    return Drained(
        per_second=count / (ended - starts[0] / 1e9),
        worker_micros=(used.workers - first.workers) / jobs * 1e6,
        postgres_micros=(used.postgres - first.postgres) / jobs * 1e6,
        resident_mb=watch.peak_mb / len(workers),
        wal_bytes=(contender.cluster.wal_position() - log) / count,
        starts=starts,
    )


def _wait_until_idle(workers: list[Worker]) -> None:
    for worker in workers:
        worker.wait_until(partial(getattr, worker.slots, "is_ready"), 120, "the worker was not ready")
    pids = [worker.pid for worker in workers]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        before = processes.cpu_seconds(pids)
        time.sleep(1)
        if processes.cpu_seconds(pids) - before < BUSY:
            return


def _left(contender: Contender, connection: Connection, count: int) -> Callable[[], int]:
    peer = contender.peer
    if peer.unfinished is not None:
        unfinished = peer.unfinished
        return lambda: number(connection, unfinished)
    assert peer.finished is not None
    finished, before = peer.finished, number(connection, peer.finished)
    return lambda: count + before - number(connection, finished)


class _Watch:
    def __init__(
        self, contender: Contender, workers: list[Worker], count: int, left: Callable[[], int]
    ) -> None:
        self.contender = contender
        self.workers = workers
        self.count = count
        self.left = left
        self.first = Cost(0, 0.0, 0.0)
        self.peak_mb = 0.0

    def until_nothing_is_left(self) -> float:
        """The database is asked only near the end, so that asking costs nobody anything."""
        deadline = time.time() + PATIENCE
        while time.time() < deadline:
            for worker in self.workers:
                worker.check()
            started = self.started()
            if started and not self.first.jobs:
                self.first = self.cost()
            if started >= self.count * NEARLY_ALL and self.left() <= 0:
                ended = time.time()
                self.sample_memory()
                return ended
            if started >= self.count * NEARLY_ALL:
                time.sleep(0.01)
            else:
                self.sample_memory()
                time.sleep(0.05)
        raise Failure(f"after {PATIENCE:.0f} s {self.left()} of {self.count} jobs were left")

    def started(self) -> int:
        return sum(worker.slots.started for worker in self.workers)

    def cost(self) -> Cost:
        used = processes.cpu_seconds([worker.pid for worker in self.workers])
        return Cost(self.started(), used, self.contender.cluster.cpu_seconds())

    def sample_memory(self) -> None:
        now = processes.resident_mb([worker.pid for worker in self.workers])
        self.peak_mb = max(self.peak_mb, now)


def _verified(workers: list[Worker], count: int) -> list[int]:
    """When each job started, in order of time; a failure unless each one started exactly once."""
    columns = [worker.slots.starts() for worker in workers]
    starts = sorted(start for column in columns for start in column if start)
    missing = sum(not any(row) for row in zip(*columns, strict=True))
    repeated = sum(worker.slots.repeated for worker in workers) + len(starts) - (count - missing)
    if missing or repeated:
        raise Failure(f"of {count} jobs {missing} never ran and {repeated} ran again")
    return starts
