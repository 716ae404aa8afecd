"""What a task costs as payloads grow. Of Holdfast alone."""

from collections.abc import Iterator

from benchmarks.peers.contender import Contender
from benchmarks.peers.drain import drain
from benchmarks.peers.measures import BATCH_BYTES, BYTES, SIZES, scaled

Point = dict[str, float]

JOBS = 60_000


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


MEASURES = {"payloads": payloads}
