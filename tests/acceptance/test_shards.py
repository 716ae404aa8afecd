"""Shards, fronts and workers are killed under load. Each shard and each front is a server of its own."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from subprocess import run
from time import monotonic, sleep
from uuid import UUID

import psycopg
import pytest

from acceptance.checker import check_all
from acceptance.fleet import HOLDFAST, Fleet, WorkerProcess
from acceptance.ground import wait_until_quiet
from acceptance.producer import Producer
from acceptance.trial import FULL, chance, sized, tell, trial
from acceptance.waiting import wait_for
from acceptance.witness import Witness
from holdfast._engine import Engine, enqueue
from holdfast._engine.enqueue import NewTask
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.errors import DatabaseUnavailable, PartialBatchError
from support.server import disposable_server
from support.shard_servers import ShardServers, shard_servers
from support.standby import COPY, follow, take_over

SHARDS = sized(2, 2, 4)
ROUNDS = sized(1, 1, 5)
KEYS = sized(2_000, 2_000, 200_000)
CLIENTS = 8
BATCH = sized(100, 100, 1_000)
SERVED = 5
WORKERS = {"HOLDFAST_LEASE": 2.0, "HOLDFAST_HEARTBEAT": 0.5, "WORKER_CONCURRENCY": 20}


class Load:
    """A client of each front, and a worker of each shard."""

    def __init__(self, servers: ShardServers, directory: Path) -> None:
        self.servers = servers
        self.witness = Witness(directory / "witness")
        self.fleet = Fleet(servers.worker_address(0), self.witness, directory)
        self.workers: list[WorkerProcess] = []
        self.producers = [
            Producer(
                servers.address(front),
                per_second=60,
                seconds=(0.0, 0.005, 0.02, 0.1, 0.5),
                started=self.witness.count_starts,
                name=f"front{front}",
                rolls_back=False,
            )
            for front in range(len(servers.fronts))
        ]
        self._numbers = count(1)

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.callback(self.fleet.close)
            self.workers = [self.launch(shard) for shard in range(len(self.servers.shards))]
            for worker in self.workers:
                worker.wait_until_ready()
            yield

    @contextmanager
    def producing(self) -> Iterator[None]:
        with ExitStack() as stack:
            for producer in self.producers:
                stack.enter_context(producer.producing())
            yield

    def launch(self, shard: int) -> WorkerProcess:
        return self.fleet.launch(WORKERS | {"DATABASE_URL": self.servers.worker_address(shard)})

    def starts_on(self, shard: int, after: float) -> list[float]:
        started = self.witness.lines("started")
        return [line.at for line in started if line.task_id.bytes[11] == shard and line.at > after]

    def tasks_elsewhere(self, lost: int) -> int:
        """While a shard is lost, enqueue by key until some tasks have ended on the others."""
        elsewhere: set[UUID] = set()
        refused = 0
        while len(elsewhere) < SERVED:
            label = f"meanwhile-{next(self._numbers)}"
            task = NewTask("acceptance.work", {"label": label, "seconds": [0]}, idempotency_key=label)
            try:
                with psycopg.connect(self.servers.address(), autocommit=True) as front:
                    elsewhere.add(Engine(front).run(enqueue.enqueue(task)))
            except DatabaseUnavailable as error:
                assert f"s{lost:02}" in str(error), "the error names the shard"  # noqa: PT017 - others are failures
                refused += 1
        assert {task_id.bytes[11] for task_id in elsewhere} <= set(range(len(self.servers.shards))) - {lost}
        wait_for("their ends", lambda: elsewhere <= {line.task_id for line in self.witness.lines("ended")})
        return refused


@contextmanager
def down(server: EmbeddedServer) -> Iterator[None]:
    """A server that is killed without a checkpoint, until the end of the block."""
    server.stop("immediate")
    try:
        yield
    finally:
        server.start()


@trial("P1", "P3", "P5", "P7")
@pytest.mark.full
@pytest.mark.timeout(600 if FULL else 240)
def test_nothing_acknowledged_is_lost_while_shards_workers_and_fronts_are_killed(tmp_path: Path) -> None:
    victims, refused = chance("shards"), 0
    with shard_servers(SHARDS, fronts=2) as servers:
        load = Load(servers, tmp_path)
        with load.running():
            with load.producing():
                for _ in range(ROUNDS):
                    sleep(1)
                    shard = victims.randrange(SHARDS)
                    with down(servers.shards[shard]):
                        refused += load.tasks_elsewhere(shard)
                    victim = victims.randrange(SHARDS)
                    load.workers[victim].kill()
                    load.workers[victim] = load.launch(victim)
                    front = victims.randrange(2)
                    with down(servers.fronts[front]):
                        other = load.producers[1 - front].acknowledged
                        before = len(other)
                        wait_for("the other front", lambda: len(other) >= before + SERVED)  # noqa: B023 - at once
                sleep(1)
            with servers.connected() as connections:
                for connection in connections:
                    wait_until_quiet(connection)
                verdict = check_all(connections, load.witness, load.fleet, *load.producers)
        keys = servers.count_keys()
    acknowledged = sum(len(producer.acknowledged) for producer in load.producers)
    repeated = sum(producer.repeated for producer in load.producers)
    tell(
        f"{acknowledged} tasks over {SHARDS} shards and 2 fronts; {ROUNDS} shards, {ROUNDS} workers and "
        f"{ROUNDS} fronts killed, {repeated} calls repeated, {refused} refused by a lost shard while others "
        f"were served, {verdict.reruns} handlers ran again, {keys} keys, none twice"
    )


@trial("P1", "P3")
@pytest.mark.full
@pytest.mark.timeout(240)
def test_nothing_is_lost_when_a_shard_moves_to_another_server_while_tasks_flow(tmp_path: Path) -> None:
    """The steps are those of docs/howto/scale-out.md."""
    with shard_servers(2) as servers, disposable_server(15) as target:
        load = Load(servers, tmp_path)
        with load.running():
            with load.producing():
                follow(target, servers.shards[1])
                sleep(1)
                stopped_at = monotonic()
                take_over(target, servers.shards[1])
                servers.shards[1] = target
                load.workers[1].ask_to_stop()
                run([HOLDFAST, "migrate"], env=os.environ | servers.environment(), check=True)
                load.workers[1] = load.launch(1)
                launched_at = monotonic()
                first = wait_for("a task of the new server", lambda: load.starts_on(1, launched_at))[0]
                sleep(1)
            with servers.connected() as connections:
                for connection in connections:
                    wait_until_quiet(connection)
                check_all(connections, load.witness, load.fleet, *load.producers)
    acknowledged = len(load.producers[0].acknowledged)
    tell(f"{acknowledged} tasks, none lost; the shard was away for {first - stopped_at:.1f} s")
    page = Path(__file__).parents[2] / "docs" / "howto" / "scale-out.md"
    assert COPY in page.read_text()


@trial("P1", "P7")
@pytest.mark.full
@pytest.mark.timeout(900 if FULL else 240)
def test_keys_that_eight_clients_enqueue_twice_exist_once_while_a_shard_and_the_front_are_killed() -> None:
    with shard_servers(4) as servers, ThreadPoolExecutor(CLIENTS) as clients:
        began, ended = monotonic(), threading.Event()
        batches = [keyed(first) for first in range(0, KEYS, BATCH)]
        acknowledged = [
            clients.submit(insist, servers.address(), batch, ended) for batch in batches + batches[::-1]
        ]
        try:
            for number, victim in enumerate((servers.shards[1], servers.fronts[0], servers.shards[3]), 1):
                part = len(acknowledged) * number // 5
                wait_for("some batches", lambda: sum(f.done() for f in acknowledged) >= part, 300)  # noqa: B023
                with down(victim):
                    pass
            answers = [future.result(600) for future in acknowledged]
        finally:
            ended.set()
        took = monotonic() - began
        first, second = answers[: len(batches)], answers[len(batches) :][::-1]
        assert first == second, "a repeated key has the task that it had"
        assert len({task_id for batch in first for task_id in batch}) == KEYS
        assert servers.count_keys() == KEYS
        tell(f"{KEYS} keys over 4 shards, enqueued twice by {CLIENTS} clients in {took:.0f} s, each once")


def keyed(first: int) -> list[NewTask]:
    return [NewTask("acceptance.work", idempotency_key=f"key-{n}") for n in range(first, first + BATCH)]


def insist(address: str, batch: list[NewTask], ended: threading.Event) -> list[UUID]:
    """As a careful client: repeat the batch until it is acknowledged."""
    while not ended.is_set():
        try:
            with psycopg.connect(address, autocommit=True) as connection:
                return [one.task_id for one in Engine(connection).run(enqueue.enqueue_many(batch))]
        except (DatabaseUnavailable, PartialBatchError, psycopg.OperationalError):
            ended.wait(0.05)
    raise AssertionError("the batch was never acknowledged")
