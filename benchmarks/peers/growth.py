"""What a task costs as work grows: longer backlogs, more workers, larger payloads. Of Holdfast alone."""

import statistics
import time
from collections.abc import Iterator

from benchmarks import scenarios
from benchmarks.contract import Contract
from benchmarks.measure import Timing, drain_slice
from benchmarks.peers.cluster import Connection, number
from benchmarks.peers.contender import Contender
from benchmarks.peers.drain import drain
from benchmarks.peers.measures import scaled

Point = dict[str, float]

BACKLOGS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
CLAIMED = 10_000
SINGLES = 300
WORKERS = (1, 2, 4, 8, 16, 32, 64)
JOBS = 60_000
PAYLOADS = (100, 1_000, 10_000, 100_000)
BYTES = 60_000_000
"""Of each size as many as make up so much, but no more than for the smallest."""

REGISTERED = "select count(*) from queues.worker"


def backlogs(contender: Contender, scale: float) -> Iterator[Point]:
    """Microseconds of a claim and a finish in batches of 200, and of an enqueue, while so many tasks wait."""
    with contender.database() as database, contender.cluster.connect(database) as connection:
        side = Contract(connection)
        for backlog in (max(1_000, int(size * scale)) for size in BACKLOGS):
            scenarios.a_backlog(connection, backlog)
            side.settle()
            connection.execute("checkpoint")
            timing = Timing()
            drain_slice(side, min(CLAIMED, backlog), timing)
            yield {
                "tasks": backlog,
                "claim_micros": timing.micros(timing.claim_seconds),
                "finish_micros": timing.micros(timing.finish_seconds),
                "enqueue_micros": _enqueue_micros(side),
            }


def _enqueue_micros(side: Contract) -> float:
    taken = []
    for seq in range(SINGLES):
        started = time.perf_counter()
        side.enqueue({"seq": seq})
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e6


def workers(contender: Contender, scale: float) -> Iterator[Point]:
    """Tasks a second through so many worker processes at once, all of them started before the first task."""
    count = scaled(JOBS, scale)
    for processes in WORKERS:
        with contender.database() as database, contender.cluster.connect(database) as connection:
            contender.fill(database, count)
            connection.execute("select queues.pause('bench')")

            def resume(connection: Connection = connection, processes: int = processes) -> None:
                while number(connection, REGISTERED) < processes:
                    time.sleep(0.1)
                connection.execute("select queues.resume('bench')")

            drained = drain(contender, database, count, processes, begin=resume)
            yield {
                "workers": processes,
                "per_second": drained.per_second,
                "worker_micros": drained.worker_micros,
                "postgres_micros": drained.postgres_micros,
            }


def payloads(contender: Contender, scale: float) -> Iterator[Point]:
    """Tasks a second, enqueued in bulk and then run, with payloads of so many bytes."""
    for size in PAYLOADS:
        count = scaled(min(JOBS, BYTES // size), scale)
        with contender.database() as database:
            batch = min(1_000, 10_000_000 // size)
            took = contender.ask(database, "enqueue", mode="many", count=count, pad=size, batch=batch)[
                "seconds"
            ]
            drained = drain(contender, database, count)
            yield {
                "bytes": size,
                "enqueued_per_second": count / took,
                "per_second": drained.per_second,
                "wal_bytes": drained.wal_bytes,
            }


MEASURES = {"backlogs": backlogs, "workers": workers, "payloads": payloads}
