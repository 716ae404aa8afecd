"""Holdfast as its users have it: an app, and `holdfast worker` on it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.peers.adapters import common
from holdfast import App
from holdfast._engine.health import clock

app = App(common.URL)
hit = common.hits_of_worker() if common.COMMAND == "worker" else None
if hit:
    common.ready()


@app.task("bench.noop")
async def noop(seq: int) -> None:
    assert hit is not None
    hit(seq)


@app.task("bench.documented")
async def documented(seq: int, document: dict[str, Any]) -> None:
    assert hit is not None
    assert document
    hit(seq)


@app.task("bench.result")
async def result(seq: int) -> dict[str, Any]:
    assert hit is not None
    hit(seq)
    return {"seq": seq, "done": True}


@app.task("bench.wait")
async def wait(seq: int) -> None:
    assert hit is not None
    hit(seq)
    await gate().wait()


@cache
def gate() -> asyncio.Event:
    """Opened when the driver makes a file."""
    event = asyncio.Event()
    go = Path(common.ORDER["slots"] + ".go")

    async def watch() -> None:
        while not go.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it, and a look takes 1 µs
            await asyncio.sleep(0.1)
        event.set()

    watches.append(asyncio.create_task(watch()))
    return event


watches: list[asyncio.Task[None]] = []


@contextmanager
def producer() -> Iterator[common.Producer]:
    tasks: dict[str, Any] = {"wait": wait, "result": result}
    task = tasks.get(common.ORDER.get("task", ""), noop)
    app.connect().run(clock(), "clock")  # connected before the time is taken, as the others are
    yield common.Producer(
        lambda seq: task.enqueue(seq=seq),
        _enqueue_documents if common.ORDER.get("bytes") else _enqueue_many(task),
    )
    app.close()


def _enqueue_many(task: Any) -> Callable[[range], Any]:
    return lambda seqs: task.enqueue_many({"seq": seq} for seq in seqs)


def _enqueue_documents(seqs: range) -> Any:
    return documented.enqueue_many({"seq": seq, "document": common.document_of(seq) or {}} for seq in seqs)


@asynccontextmanager
async def concurrent_producer() -> AsyncIterator[common.AsyncProducer]:
    await app.connect().arun(clock())
    yield common.AsyncProducer(lambda seq: noop.aenqueue(seq=seq))
    app.close()


@asynccontextmanager
async def producer_with(driver: str) -> AsyncIterator[common.AsyncProducer]:
    """On one connection of this driver, which is the caller's: `tx=`."""
    connection: Any
    if driver == "asyncpg":
        import asyncpg  # noqa: PLC0415 - a worker does not need it

        connection = await asyncpg.connect(common.URL)
    else:
        connection = await psycopg.AsyncConnection.connect(common.URL, autocommit=True)
    task = noop.using(tx=connection)
    yield common.AsyncProducer(lambda seq: task.aenqueue(seq=seq))
    await connection.close()


def install() -> None:
    from holdfast._install.schema import migrate  # noqa: PLC0415 - a worker does not need it

    migrate(common.URL)


def worker() -> None:
    os.environ["WORKER_CONCURRENCY"] = str(common.ORDER["concurrency"])
    os.environ["WORKER_QUEUES"] = "bench"
    os.environ["DATABASE_URL"] = common.URL
    holdfast = str(Path(sys.executable).with_name("holdfast"))
    command = [holdfast, "worker", "benchmarks.peers.adapters.holdfast:app"]
    os.execv(holdfast, command)  # noqa: S606 - the same process goes on as the worker


if __name__ == "__main__":
    driver = common.ORDER.get("driver")
    if driver is not None:
        import uvloop

        common.main(
            install=install, producer=lambda: producer_with(str(driver)), worker=worker, run=uvloop.run
        )
    else:
        opened = concurrent_producer if common.COMMAND == "concurrent" else producer
        common.main(install=install, producer=opened, worker=worker)
