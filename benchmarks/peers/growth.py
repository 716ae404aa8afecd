"""What a task costs as work grows: more workers, larger payloads. Of Holdfast alone."""

import time
from collections.abc import Iterator

from benchmarks.peers.cluster import Connection, number
from benchmarks.peers.contender import Contender
from benchmarks.peers.drain import drain
from benchmarks.peers.measures import BATCH_BYTES, BYTES, SIZES, scaled

Point = dict[str, float]

WORKERS = (1, 2, 4, 8, 16, 32, 64)
JOBS = 60_000

REGISTERED = "select count(*) from queues.worker"


def workers(contender: Contender, scale: float) -> Iterator[Point]:
    """Tasks a second through n worker processes at once, all started before the first task."""
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
    """Tasks a second, enqueued in bulk and then run, with payloads of this many bytes."""
    for size in SIZES:
        count = scaled(min(JOBS, BYTES // size), scale)
        with contender.database() as database:
            batch = min(1_000, BATCH_BYTES // size)
            order = {"count": count, "bytes": size, "batch": batch}
            took = contender.ask(database, "enqueue", mode="many", **order)["seconds"]
            drained = drain(contender, database, count)
            yield {
                "bytes": size,
                "enqueued_per_second": count / took,
                "per_second": drained.per_second,
                "wal_bytes": drained.wal_bytes,
            }


MEASURES = {"workers": workers, "payloads": payloads}
