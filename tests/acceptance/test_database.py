"""The database goes away under load, and comes back."""

from collections.abc import Iterator
from datetime import datetime
from time import monotonic, sleep

import pytest

from acceptance.checker import lost_by_the_living
from acceptance.fleet import WorkerProcess
from acceptance.ground import Ground
from acceptance.producer import Producer
from acceptance.trial import FULL, chance, sized, tell, trial
from holdfast._engine import Engine, enqueue, leases
from holdfast._engine.enqueue import NewTask
from support.engine import rows, value

WORKERS = {"HOLDFAST_LEASE": 2.0, "HOLDFAST_HEARTBEAT": 0.5, "WORKER_CONCURRENCY": 20}
SECONDS = (0.0, 0.005, 0.02, 0.1, 0.5)

# All but this session: workers, clients, and their connections that are only just being made.
_TERMINATE = """
    select count(pg_terminate_backend(pid)) from pg_stat_activity
    where backend_type = 'client backend' and pid <> pg_backend_pid()"""


_VICTIMS = (
    "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
)


def report(ground: Ground, producer: Producer, faults: str) -> None:
    """Check everything, and print the figures."""
    workers = list(ground.fleet.running)
    ground.quiesce()
    verdict = ground.check(producer)
    tell(
        f"{len(producer.acknowledged)} tasks, {faults}, {producer.repeated} calls of clients repeated, "
        f"{lost_by_the_living(ground.conn, ground.fleet)} leases ended, {verdict.reruns} handlers ran again, "
        f"at most {verdict.most_attempts} attempts"
    )
    assert workers == ground.fleet.all == ground.fleet.running


@trial("P1", "P2", "P6", quick=True)
@pytest.mark.timeout(600 if FULL else 120)
def test_nothing_acknowledged_is_lost_when_the_server_is_stopped_at_once(ground: Ground) -> None:
    """Without a checkpoint, as in a power failure. Workers are not restarted."""
    stops = 5 if FULL else 2
    pauses = chance("stops")
    producer = ground.producer(per_second=150, seconds=SECONDS)
    ground.fleet.start(2, WORKERS)
    with producer.producing():
        for _ in range(stops):
            sleep(pauses.uniform(1, 3))
            ground.server.stop("immediate")
            sleep(pauses.uniform(0, 2))
            ground.server.start()
        sleep(2)
    report(ground, producer, f"{stops} stops of the server")


@trial("P3")
def test_no_token_is_issued_again_after_a_crash_of_the_server(ground: Ground) -> None:
    """A crash undoes a claim that has not reached the disk, while its worker goes on with the task."""
    tokens: list[int] = []
    for _ in range(3):
        connection = ground.conn
        connection.execute("set synchronous_commit = off")
        client = Engine(connection)
        client.run(enqueue.enqueue_many([NewTask("acceptance.work") for _ in range(70)]))
        tokens += [client.run(leases.claim("w1", 1, queues=["acceptance"]))[0].token for _ in range(70)]
        ground.server.stop("immediate")
        ground.server.start()
        assert value(ground.conn, "select count(*) from queues.lease") < len(tokens)
    assert tokens == sorted(set(tokens))


@trial("P1", "P2", "P7")
@pytest.mark.timeout(600 if FULL else 120)
def test_nothing_is_lost_when_every_connection_is_cut_again_and_again(ground: Ground) -> None:
    producer = ground.producer(per_second=150, seconds=SECONDS)
    ground.fleet.start(2, WORKERS)
    nemesis, cut = ground.conn, 0
    with producer.producing():
        until = monotonic() + (30 if FULL else 4)
        while monotonic() < until:
            sleep(0.3)
            cut += value(nemesis, _TERMINATE)
        sleep(1)
    report(ground, producer, f"{cut} connections cut")


@trial("P1", "P2", "P7", quick=True)
@pytest.mark.timeout(300)
def test_nothing_is_lost_when_some_connection_is_cut_ten_times_a_second(ground: Ground) -> None:
    producer = ground.producer(per_second=150, seconds=SECONDS)
    ground.fleet.start(2, WORKERS)
    nemesis, cut, victims = ground.conn, 0, chance("connections")
    with producer.producing():
        until = monotonic() + sized(2, 6, 45)
        while monotonic() < until:
            sleep(0.1)
            found = sorted(row["pid"] for row in rows(nemesis, _VICTIMS))
            if found:
                nemesis.execute("select pg_terminate_backend(%s)", [victims.choice(found)])
                cut += 1
        sleep(1)
        outages = sorted(seconds for worker in ground.fleet.all for seconds in outages_of(worker))
    slowest = outages[int(len(outages) * 0.99)] if outages else 0.0
    report(
        ground,
        producer,
        f"{cut} connections cut, {len(outages)} outages of workers, 99 % of them over in {slowest:.2f} s",
    )


def outages_of(worker: WorkerProcess) -> Iterator[float]:
    """From the line about the first connection that failed to the one about the last that works again."""
    since: float | None = None
    lines = [*worker.logged("database_unavailable"), *worker.logged("database_back")]
    for line in sorted(lines, key=lambda line: str(line["timestamp"])):
        at = datetime.fromisoformat(line["timestamp"]).timestamp()
        if line["level"] == "warning":
            since = at
        elif line["level"] == "info" and since is not None:
            yield at - since
            since = None
