"""What is measured. Each one takes a contender, has a database to itself and answers with named figures."""

import statistics
import time
from collections.abc import Callable
from functools import partial

from benchmarks.peers import processes
from benchmarks.peers.cluster import number
from benchmarks.peers.contender import Contender, Failure
from benchmarks.peers.drain import drain

Values = dict[str, float]
Measure = Callable[[Contender, float], Values]

TRICKLE = 1_000
WARM_UP = 20
FULL_LATENCY = 0.2
"""From this scale on, all samples are taken: a 99th percentile needs them."""
FIRST = 200
IN_FLIGHT = 1000
WIDTH = 100
FLEETS = (4, 16, 64)
FLEET_JOBS = 200_000
"""Enough that 64 new connections, which compile their statements first, are not most of what is measured."""
SIZES = (100, 1_000, 10_000, 100_000)
BYTES = 60_000_000
"""Of each size as many as make up so much, but no more than MOST_DOCUMENTS."""
MOST_DOCUMENTS = 60_000
BATCH_BYTES = 10_000_000


def scaled(count: int, scale: float) -> int:
    return max(200, int(count * scale) // 100 * 100)


def enqueue_one(contender: Contender, scale: float) -> Values:
    return _enqueue(contender, "one", scaled(contender.peer.singles, scale))


def enqueue_many(contender: Contender, scale: float) -> Values:
    return _enqueue(contender, "many", scaled(contender.peer.jobs, scale)) if contender.peer.bulk else {}


def enqueue_by_driver(contender: Contender, scale: float) -> Values:
    """One by one over each driver: then what differs is the code of each and the work of the server."""
    count = scaled(contender.peer.singles, scale)
    found: Values = {}
    for driver in contender.peer.drivers:
        order = {"count": count, "first": FIRST, "warm_up": FIRST, "server": contender.cluster.postmaster}
        with contender.database() as database:
            used = contender.ask(database, "enqueue", mode="one", driver=driver, **order)
            _expect_unfinished(contender, database, FIRST + count)
        found |= {
            f"{driver}_per_second": count / used["seconds"],
            f"{driver}_caller_micros": used["caller"] / count * 1e6,
            f"{driver}_server_micros": used["server"] / count * 1e6,
        }
    return found


def enqueue_concurrently(contender: Contender, scale: float) -> Values:
    """A hundred at a time in one process; the database is asked whether all have arrived."""
    count = scaled(contender.peer.singles * 10, scale)
    with contender.database() as database:
        took = contender.ask(database, "concurrent", count=count, width=WIDTH)["seconds"]
        _expect_unfinished(contender, database, count)
    return {"per_second": count / took}


def drain_alone(contender: Contender, scale: float) -> Values:
    return _drain(contender, scaled(contender.peer.jobs, scale), 1)


def drain_together(contender: Contender, scale: float) -> Values:
    return _drain(contender, scaled(contender.peer.jobs, scale), 2)


def latency(contender: Contender, scale: float) -> Values:
    """From the return of the enqueue, which is after its commit, to the start of the handler."""
    count = (TRICKLE if scale >= FULL_LATENCY else scaled(TRICKLE, scale)) + WARM_UP
    settings = {**contender.peer.settings, **contender.peer.idle_settings}
    with contender.database() as database, contender.workers(database, count, settings=settings) as (worker,):
        worker.wait_until(lambda: worker.slots.is_ready, 20, "the worker was not ready")
        time.sleep(3)
        times = contender.ask(database, "trickle", count=count, interval=0.02)
        worker.wait_until(lambda: worker.slots.started == count, 15, "not every job had started")
        starts = worker.slots.starts()
    commit = [(s - r) / 1e6 for s, r in zip(starts, times["returned"], strict=True)][WARM_UP:]
    call = [(s - c) / 1e6 for s, c in zip(starts, times["called"], strict=True)][WARM_UP:]
    return {**_percentiles(commit), **{f"call_{name}": value for name, value in _percentiles(call).items()}}


def in_flight(contender: Contender, _scale: float) -> Values:
    """Memory of one worker while a thousand handlers wait for an event; then they may end, and must."""
    with contender.database() as database:
        contender.ask(database, "enqueue", mode="many", count=IN_FLIGHT, task="wait")
        with contender.workers(database, IN_FLIGHT, settings={"concurrency": IN_FLIGHT}) as (worker,):
            worker.wait_until(lambda: worker.slots.started == IN_FLIGHT, 60, "not every job was in flight")
            time.sleep(1)
            resident = processes.resident_mb([worker.pid])
            worker.slots.path.with_name(worker.slots.path.name + ".go").touch()
            with contender.cluster.connect(database) as connection:
                unfinished = contender.peer.unfinished or ""
                worker.wait_until(lambda: number(connection, unfinished) == 0, 30, "not every job ended")
    return {"resident_mb": resident}


def documents(contender: Contender, scale: float) -> Values:
    """Jobs per second, enqueued in bulk with documents of each size. Of Holdfast and of the floor."""
    found = {}
    for size in SIZES:
        count = scaled(min(MOST_DOCUMENTS, BYTES // size), scale)
        batch = min(1_000, BATCH_BYTES // size)
        with contender.database() as database:
            contender.ask(database, "enqueue", mode="many", count=batch, bytes=size, batch=batch)
            order = {"count": count, "first": batch, "bytes": size, "batch": batch}
            took = contender.ask(database, "enqueue", mode="many", **order)["seconds"]
            _expect_unfinished(contender, database, batch + count)
        found[f"bytes_{size}"] = count / took
    return found


def wal(contender: Contender, scale: float) -> Values:
    """Bytes of log that running a task and storing its result writes; `enqueue_one` measures its enqueue."""
    count = scaled(contender.peer.jobs, scale)
    with contender.database() as database:
        contender.ask(database, "enqueue", mode="many", count=count, task="result")
        with contender.cluster.connect(database) as connection:
            connection.execute("vacuum analyze")
        return {"run_bytes": drain(contender, database, count).wal_bytes}


def _enqueue(contender: Contender, mode: str, count: int) -> Values:
    with contender.database() as database:
        # The first write to a page after a checkpoint logs all of it: not what a job costs.
        contender.ask(database, "enqueue", mode=mode, count=FIRST)
        log = contender.cluster.wal_position()
        took = contender.ask(database, "enqueue", mode=mode, count=count, first=FIRST)["seconds"]
        written = contender.cluster.wal_position() - log
        _expect_unfinished(contender, database, FIRST + count)
    return {"per_second": count / took, "wal_bytes": written / count}


def fleet(contender: Contender, scale: float, processes: int) -> Values:
    """Of this many worker processes, all of them there before the first job can be had."""
    peer, count = contender.peer, scaled(FLEET_JOBS, scale)
    if peer.hold is None or peer.release is None:
        return {}
    with contender.database() as database, contender.cluster.connect(database) as connection:
        contender.fill(database, count)
        connection.execute(peer.hold)
        connection.execute("vacuum analyze")
        release = partial(connection.execute, peer.release)
        return drain(contender, database, count, processes, release).values()


def _drain(contender: Contender, count: int, processes: int) -> Values:
    with contender.database() as database:
        contender.fill(database, count)
        return drain(contender, database, count, processes).values()


def _expect_unfinished(contender: Contender, database: str, count: int) -> None:
    if contender.peer.unfinished is None:
        return
    with contender.cluster.connect(database) as connection:
        found = number(connection, contender.peer.unfinished)
    if found != count:
        raise Failure(f"{count} jobs were enqueued and {found} are there")


def _percentiles(values: list[float]) -> Values:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}


EVERYONE: dict[str, Measure] = {
    "enqueue_one": enqueue_one,
    "enqueue_many": enqueue_many,
    "enqueue_by_driver": enqueue_by_driver,
    "drain_1": drain_alone,
    "drain_2": drain_together,
    **{f"fleet_{number}": partial(fleet, processes=number) for number in FLEETS},
    "latency": latency,
}
"""Of every contender; fleets, of those whose backlog can be held back, and drivers, of those that name some.
The floor only enqueues."""

AGAINST_THE_FLOOR: dict[str, Measure] = {"documents": documents}
"""Of Holdfast and the floor."""

OURS: dict[str, Measure] = {
    "concurrent": enqueue_concurrently,
    "in_flight": in_flight,
    "wal": wal,
}
"""Of Holdfast alone."""
