# mypy: disable-error-code="import-not-found", disallow-untyped-decorators=False
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dbos import DBOS, DBOSClient

from benchmarks.peers.adapters import common

QUEUE = "noop"
OPTIONS = {"queue_name": QUEUE, "workflow_name": "noop", "app_version": "v1"}
hit: Callable[[int], None] | None = common.hits_of_worker() if common.COMMAND == "worker" else None


@DBOS.workflow(name="noop")
def noop(seq: int) -> None:
    assert hit is not None
    hit(seq)


def launch(**more: Any) -> None:
    quiet = {"log_level": "ERROR", "console_log_level": "ERROR"}
    DBOS(
        config={
            "name": "bench",
            "system_database_url": common.URL,
            "application_version": "v1",
            **quiet,
            **more,
        }
    )
    DBOS.launch()


def install() -> None:
    launch()
    DBOS.register_queue(QUEUE)
    time.sleep(0.5)
    DBOS.destroy()


@contextmanager
def producer() -> Iterator[common.Producer]:
    client = DBOSClient(system_database_url=common.URL)
    engine = client._sys_db.engine  # noqa: SLF001 - a transaction of the caller is its documented bulk

    def many(seqs: range) -> None:
        with engine.begin() as connection:
            for seq in seqs:
                client.enqueue_in_transaction(connection, dict(OPTIONS), seq)

    yield common.Producer(lambda seq: client.enqueue(dict(OPTIONS), seq), many)
    client.destroy()


def worker() -> None:
    common.ready()
    launch(executor_id=f"e{os.getpid()}", sys_db_pool_size=20, max_executor_threads=common.ORDER["threads"])
    DBOS.register_queue(
        QUEUE,
        worker_concurrency=common.ORDER["concurrency"],
        polling_interval_sec=common.ORDER["polling"],
        on_conflict="always_update",
    )
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    stopped.wait()
    os._exit(0)


if __name__ == "__main__":
    common.main(install=install, producer=producer, worker=worker)
