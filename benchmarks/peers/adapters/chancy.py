# mypy: disable-error-code="import-not-found"
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvloop
from chancy import Chancy, Job, Queue, Worker

from benchmarks.peers.adapters import common

log = logging.getLogger("chancy")
log.setLevel(logging.WARNING)
hit: Callable[[int], None] | None = common.hits_of_worker() if common.COMMAND == "worker" else None


async def noop(*, seq: int) -> None:
    assert hit is not None
    hit(seq)


def client() -> Any:
    return Chancy(common.URL, log=log)


async def install() -> None:
    async with client() as chancy:
        await chancy.migrate()


@asynccontextmanager
async def producer() -> AsyncIterator[common.AsyncProducer]:
    job = Job(func="benchmarks.peers.adapters.chancy.noop")
    async with client() as chancy:

        async def one(seq: int) -> None:
            await chancy.push(job.with_kwargs(seq=seq))

        async def many(seqs: range) -> None:
            jobs = [job.with_kwargs(seq=seq) for seq in seqs]
            async for _ in chancy.push_many(jobs, batch_size=len(jobs)):
                pass

        yield common.AsyncProducer(one, many)


async def worker() -> None:
    async with client() as chancy:
        queue = Queue(
            "default",
            concurrency=common.ORDER["concurrency"],
            executor=Chancy.Executor.Async,
            polling_interval=1,
            eager_polling=True,
        )
        await chancy.declare(queue, upsert=True)
        working = Worker(chancy)
        working.send_outgoing_interval = 1
        common.ready()
        async with working:
            await working.wait_for_shutdown()


if __name__ == "__main__":
    common.main(install=install, producer=producer, worker=worker, run=uvloop.run)
