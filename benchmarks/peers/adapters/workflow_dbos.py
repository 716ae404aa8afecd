# mypy: disable-error-code="import-not-found", disallow-untyped-decorators=False
"""Runs with steps in DBOS. Runs in the environment of the peer."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dbos import DBOS, DBOSClient

from benchmarks.peers.adapters import common
from benchmarks.peers.adapters import dbos as plain

RESULT = "r" * 58
OPTIONS = {"queue_name": plain.QUEUE, "workflow_name": "run", "app_version": "v1"}


@DBOS.step(name="work")
async def work(slot: int) -> str:
    assert plain.hit is not None
    plain.hit(slot)
    return RESULT


@DBOS.workflow(name="run")
async def run(seq: int, steps: int) -> None:
    for number in range(steps):
        await work(seq * steps + number)


@contextmanager
def producer() -> Iterator[common.Producer]:
    client, steps = DBOSClient(system_database_url=common.URL), common.ORDER["steps"]
    yield common.Producer(lambda seq: client.enqueue(dict(OPTIONS), seq, steps))
    client.destroy()


def worker() -> None:
    common.ready()
    plain.launch(executor_id=f"e{os.getpid()}", sys_db_pool_size=20)
    DBOS.register_queue(
        plain.QUEUE,
        worker_concurrency=common.ORDER["concurrency"],
        polling_interval_sec=common.ORDER["polling"],
        on_conflict="always_update",
    )
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    stopped.wait()
    os._exit(0)


if __name__ == "__main__":
    common.main(install=plain.install, producer=producer, worker=worker)
