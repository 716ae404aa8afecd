"""What `make bench-workflows` measures: steps, suspended runs and joins, each on a fresh database."""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from benchmarks.peers import processes
from benchmarks.peers.cluster import Connection, number
from benchmarks.peers.contender import Contender, Failure, Worker
from benchmarks.waiting import CLAIM, CLAIMS, FILL, WARM_UP, Queue

CONCURRENT = 200
STEPS = 10
PATIENCE = 180.0
SETTLED = 3.0
"""A worker that has been idle this long has done what its start needs."""
SIGNAL_INTERVAL = 0.02
QUEUE = "bench"
SUSPENDED = "template_suspended"
WAITING = "select (payload ->> 'seq')::integer, task_id::text from queues.task where type = 'bench.wait'"


@dataclass(frozen=True)
class Stepped:
    """Runs with steps: when each step began, by run."""

    starts: list[list[int]]
    wal_bytes: int

    @property
    def per_second(self) -> float:
        begun = sorted(start for run in self.starts for start in run)
        return (len(begun) - 1) / ((begun[-1] - begun[0]) / 1e9)

    @property
    def milliseconds(self) -> float:
        """From the begin of one step to that of the next: the median."""
        gaps = [(after - before) / 1e6 for run in self.starts for before, after in pairwise(run)]
        return statistics.median(gaps)


def run_steps(contender: Contender, runs: int, steps: int, task: str = "run") -> Stepped:
    """Run what was enqueued before the worker started. A failure unless each step ran exactly once."""
    count = runs * (steps if task == "run" else 1)
    with contender.database() as database:
        mode = "many" if contender.peer.bulk else "one"
        contender.ask(database, "enqueue", mode=mode, count=runs, steps=steps, task=task)
        with contender.cluster.connect(database) as connection:
            connection.execute("vacuum analyze")
        with contender.cluster.connect(database) as connection:
            _checkpointed_pages_written(contender, database)
            log = contender.cluster.wal_position()
            with contender.workers(database, count) as [worker]:
                _until_started(worker, count)
                _until_ended(contender, connection, worker, runs)
                log = contender.cluster.wal_position() - log
            starts = worker.slots.starts()
            if worker.slots.repeated:
                raise Failure(f"{worker.slots.repeated} steps ran again")
    size = count // runs
    return Stepped([starts[at : at + size] for at in range(0, count, size)], log)


def _checkpointed_pages_written(contender: Contender, database: str) -> None:
    """Nothing of the filling is left to be written while the worker is measured."""
    with contender.cluster.connect(database) as connection:
        connection.execute("checkpoint")


def _until_started(worker: Worker, count: int) -> None:
    worker.wait_until(lambda: worker.slots.started >= count, PATIENCE, f"fewer than {count} steps ran")


def _until_ended(contender: Contender, connection: Connection, worker: Worker, runs: int) -> None:
    finished = contender.peer.finished
    assert finished is not None
    query = finished
    worker.wait_until(lambda: number(connection, query) >= runs, PATIENCE, "runs have not ended")


def step_and_commit(contender: Contender, steps: int) -> tuple[float, float]:
    """Milliseconds of a step of one run alone, and of a commit, taken in turns within one run: medians."""
    steps -= steps % 20
    with contender.database() as database, contender.cluster.connect(database) as connection:
        contender.ask(database, "enqueue", mode="many", count=1, steps=steps, task="pair")
        connection.execute("vacuum analyze")
        with contender.workers(database, steps) as [worker]:
            _until_started(worker, steps)
            _until_ended(contender, connection, worker, 1)
        row = connection.execute("select result from queues.outcome").fetchone()
        if row is None or worker.slots.repeated:
            raise Failure("the run has not ended as it should")
        return row[0]["step"], row[0]["commit"]


@contextmanager
def suspended_runs(contender: Contender, count: int) -> Iterator[str]:
    """A database with this many suspended runs, of which each measurement makes a copy."""
    contender.cluster.create(SUSPENDED, contender.template)
    try:
        with contender.cluster.connect(SUSPENDED) as connection:
            suspend(connection, count)
            connection.execute("vacuum analyze")
        yield SUSPENDED
    finally:
        contender.cluster.drop(SUSPENDED)


def suspend(connection: Connection, count: int) -> None:
    """Runs that wait for the signal `go`, made as a worker makes them."""
    until = (datetime.now(UTC) + timedelta(days=30)).isoformat()
    for start in range(0, count, FILL):
        size = min(FILL, count - start)
        tasks = [
            {"type": "bench.wait", "queue": QUEUE, "payload": {"seq": start + n, "steps": 1}}
            for n in range(size)
        ]
        connection.execute("select count(*) from queues.enqueue_many(%s)", (json.dumps(tasks),))
        while claimed := connection.execute(CLAIM, (1000, QUEUE)).fetchall():
            ended = [
                {
                    "task_id": task_id,
                    "token": token,
                    "status": "suspend",
                    "run_at": until,
                    "waits": [{"name": "go", "signal": "go", "until": until}],
                }
                for task_id, token in claimed
            ]
            connection.execute("select count(*) from queues.finish('w1', %s)", (json.dumps(ended),))
    connection.execute("delete from queues.chore")  # a leader does this within a second


def claims_beside_suspended(contender: Contender, database: str, claims: int = CLAIMS) -> tuple[float, float]:
    """The time of a claim beside suspended runs, divided by that in a queue without them, in turns.

    The median over the turns; and the same of another queue without them, which shows the noise.
    """
    size = 50
    with contender.database(database) as name, contender.cluster.connect(name) as connection:
        sides = [
            Queue(connection, queue, ({} for _ in range(size * (claims + WARM_UP))))
            for queue in ("one", QUEUE, "two")
        ]
        connection.execute("vacuum analyze")
        for turn in range(WARM_UP + claims):
            for number in range(len(sides)):
                sides[(turn + number) % len(sides)].claim_and_finish(size)
        one, beside, two = (side.claims[WARM_UP:] for side in sides)
        return _median_ratio(beside, one), _median_ratio(two, one)


def _median_ratio(above: list[float], below: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


@dataclass(frozen=True)
class Woken:
    milliseconds: list[float]
    """From the return of the signal to the handler that goes on."""
    resident_mb: float

    @property
    def figures(self) -> tuple[float, float]:
        """Megabytes, and the 99th percentile of the times."""
        return self.resident_mb, statistics.quantiles(self.milliseconds, n=100)[98]


def wake(contender: Contender, database: str, signals: int) -> Woken:
    """Signals to some of the suspended runs, one after the other, with one worker."""
    with _idle_worker(contender, database) as (connection, worker):
        resident = processes.resident_mb([worker.pid])
        ids = dict(connection.execute(WAITING).fetchall())
        chosen = {seq: ids[seq] for seq in range(0, len(ids), max(1, len(ids) // signals))}
        sent = {}
        for seq, task_id in chosen.items():
            connection.execute("select queues.signal(%s, 'go', '1')", (task_id,))
            sent[seq] = time.time_ns()
            time.sleep(SIGNAL_INTERVAL)
        worker.wait_until(lambda: worker.slots.started >= len(chosen), PATIENCE, "not every run has gone on")
        starts = worker.slots.starts()
        return Woken([max(0.0, (starts[seq] - at) / 1e6) for seq, at in sent.items()], resident)


def resident_alone(contender: Contender) -> float:
    """Megabytes of an idle worker with no suspended runs."""
    with _idle_worker(contender, contender.template) as (_, worker):
        return processes.resident_mb([worker.pid])


@contextmanager
def _idle_worker(contender: Contender, template: str) -> Iterator[tuple[Connection, Worker]]:
    with contender.database(template) as database, contender.cluster.connect(database) as connection:
        tasks = number(connection, "select count(*) from queues.task")
        with contender.workers(database, max(1, tasks)) as [worker]:
            worker.wait_until(_registered(connection), 60, "the worker has not registered")
            time.sleep(SETTLED)
            yield connection, worker


def _registered(connection: Connection) -> Callable[[], bool]:
    return lambda: number(connection, "select count(*) from queues.worker where worker_id <> 'w1'") > 0


def children_alone(contender: Contender, children: int) -> float:
    """Seconds from the first child's start until all have ended."""
    return _children(contender, children, task="child", runs=children, ends=children)


def children_joined(contender: Contender, children: int) -> float:
    """Seconds from the first child's start until the run that joins them has ended."""
    return _children(contender, children, task="join", runs=1, ends=children + 1)


def _children(contender: Contender, children: int, *, task: str, runs: int, ends: int) -> float:
    with contender.database() as database, contender.cluster.connect(database) as connection:
        contender.ask(database, "enqueue", mode="many", count=runs, steps=children, task=task)
        connection.execute("vacuum analyze")
        with contender.workers(database, children + 1) as [worker]:
            _until_started(worker, ends)
            _until_ended(contender, connection, worker, ends)
        row = connection.execute("select extract(epoch from max(finished_at)) from queues.outcome").fetchone()
        assert row is not None
        return float(row[0]) - min(start for start in worker.slots.starts() if start) / 1e9
