"""Shards, workers and fronts that are killed under load, and a shard that moves to another server.

Each shard is a server of its own here, so that it can be killed.
"""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from holdfast import HoldfastError
from holdfast.engine import Engine, enqueue
from holdfast.engine.enqueue import NewTask
from holdfast.errors import DatabaseUnavailable, PartlyEnqueued
from holdfast.postgres import EmbeddedServer, binaries
from holdfast.postgres.account import account_for
from holdfast.shards.migration import migrate_shards
from support.server import disposable_server
from support.sharded import require_plproxy

SHARDS = 4
KEYS = int(os.environ.get("HOLDFAST_SHARD_KEYS", "4000"))
CLIENTS = 8
BATCH = 100


@dataclass
class House:
    front: EmbeddedServer
    shards: list[EmbeddedServer]

    @property
    def dsn(self) -> str:
        return self.front.url("front")

    @property
    def settings(self) -> dict[str, str]:
        return {f"s{n:02}": server.url("shard") for n, server in enumerate(self.shards)}

    def migrate(self) -> None:
        migrate_shards(self.dsn, self.settings)

    def count(self, what: str = "*") -> int:
        total = 0
        for url in self.settings.values():
            with psycopg.connect(url) as connection:
                row = connection.execute(f"select count({what}) from queues.task").fetchone()
                total += row[0] if row else 0
        return total


@contextmanager
def house(shards: int = SHARDS) -> Iterator[House]:
    require_plproxy()
    with ExitStack() as stack:
        front, *others = [stack.enter_context(disposable_server(15)) for _ in range(shards + 1)]
        for server, name in [(front, "front"), *((server, "shard") for server in others)]:
            with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
                admin.execute(f"create database {name}")
        found = House(front, others)
        found.migrate()
        yield found


def keyed(first: int, count: int) -> list[NewTask]:
    return [NewTask("load.work", idempotency_key=f"key-{n}") for n in range(first, first + count)]


def enqueue_until_done(dsn: str, batch: list[NewTask], ended: threading.Event) -> list[str]:
    """As a careful client: repeat the batch until it is acknowledged."""
    while not ended.is_set():
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                answers = Engine(connection).run(enqueue.enqueue_many(batch))
                return [str(one.task_id) for one in answers]
        except (DatabaseUnavailable, PartlyEnqueued, HoldfastError, psycopg.Error):
            time.sleep(0.05)
    raise AssertionError("the batch was never acknowledged")


@pytest.mark.full
def test_keys_that_eight_clients_enqueue_twice_exist_once_while_a_shard_and_the_front_are_killed() -> None:
    with house() as found, ThreadPoolExecutor(CLIENTS) as clients:
        ended = threading.Event()
        batches = [keyed(first, BATCH) for first in range(0, KEYS, BATCH)]
        acknowledged = [
            clients.submit(enqueue_until_done, found.dsn, batch, ended) for batch in batches + batches[::-1]
        ]
        for victim in (found.shards[1], found.front, found.shards[3]):
            while sum(future.done() for future in acknowledged) < 3:
                time.sleep(0.01)
            victim.stop("immediate")
            with psycopg.connect(found.shards[0].url("shard"), autocommit=True) as rest:
                Engine(rest).run(enqueue.enqueue(NewTask("load.other")))  # the others go on
            victim.start()
        answers = [future.result(300) for future in acknowledged]
        ended.set()

        first, second = answers[: len(batches)], answers[len(batches) :][::-1]
        assert first == second, "a repeated key has the task that it had"
        assert len({task_id for batch in first for task_id in batch}) == KEYS
        assert found.count("idempotency_key") == KEYS
        assert found.count("distinct idempotency_key") == KEYS


@pytest.mark.full
def test_a_shard_moves_to_another_server_while_tasks_flow(tmp_path: Path) -> None:
    """By a standby that is promoted: the settings get its address, and the front is generated again."""
    with house(2) as found, disposable_server(15) as target, ThreadPoolExecutor(2) as clients:
        old, ended = found.shards[1], threading.Event()
        batches = [keyed(first, 20) for first in range(0, 2000, 20)]
        flowing = [clients.submit(enqueue_until_done, found.dsn, batch, ended) for batch in batches]
        standby = _standby_of(old, target)
        _wait_until_caught_up(old, standby)
        old.stop("fast")  # from here on, calls for this shard fail and are repeated
        _promote(standby)
        found.shards[1] = standby
        found.migrate()
        answers = [future.result(300) for future in flowing]
        ended.set()

        assert len({task_id for batch in answers for task_id in batch}) == 2000
        assert found.count("idempotency_key") == 2000
        with psycopg.connect(found.dsn) as front:
            reached = front.execute("select bool_and(reached) from holdfast_front.shard_status()").fetchone()
        assert reached == (True,)


def _standby_of(primary: EmbeddedServer, target: EmbeddedServer) -> EmbeddedServer:
    """The target server with the data of the primary, following it."""
    data = target.status().data
    target.stop("fast")
    socket = str(psycopg.conninfo.conninfo_to_dict(primary.url("postgres"))["host"])
    account = account_for(data)
    shutil.rmtree(data)
    copied = account.run(
        *(binaries(15) / "pg_basebackup", "-D", data, "-h", socket, "-U", "postgres"),
        *("-p", primary.settings["port"], "-R", "-X", "stream", "-c", "fast"),
        cwd=data.parent,
    )
    assert copied.returncode == 0, copied.stdout
    target.start()
    return target


def _wait_until_caught_up(primary: EmbeddedServer, standby: EmbeddedServer) -> None:
    with (
        psycopg.connect(primary.url("postgres"), autocommit=True) as before,
        psycopg.connect(standby.url("postgres"), autocommit=True) as after,
    ):
        for _ in range(2000):
            position = before.execute("select pg_current_wal_lsn()").fetchone()
            row = after.execute("select pg_last_wal_replay_lsn() >= %s", position).fetchone()
            if row == (True,):
                return
    raise AssertionError("the standby does not catch up")


def _promote(standby: EmbeddedServer) -> None:
    with psycopg.connect(standby.url("postgres"), autocommit=True) as connection:
        connection.execute("select pg_promote(true, 60)")
