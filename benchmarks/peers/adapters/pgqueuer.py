# mypy: disable-error-code="import-not-found", disallow-untyped-decorators=False
import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver, PsycopgDriver

from benchmarks.peers.adapters import common


async def install() -> None:
    connection = await asyncpg.connect(common.URL)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


@asynccontextmanager
async def producer() -> AsyncIterator[common.AsyncProducer]:
    connection: Any
    if common.ORDER.get("driver") == "psycopg":
        connection = await psycopg.AsyncConnection.connect(common.URL, autocommit=True)
        queries = Queries(PsycopgDriver(connection))
    else:
        connection = await asyncpg.connect(common.URL)
        queries = Queries(AsyncpgDriver(connection))

    async def one(seq: int) -> None:
        await queries.enqueue("noop", b"%d" % seq)

    async def many(seqs: range) -> None:
        await queries.enqueue(["noop"] * len(seqs), [b"%d" % seq for seq in seqs], [0] * len(seqs))

    yield common.AsyncProducer(one, many)
    await connection.close()


async def worker() -> None:
    hit = common.hits_of_worker()
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(common.URL)))

    @queue.entrypoint("noop")
    async def noop(job: Any) -> None:
        hit(int(job.payload))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
    common.ready()
    await queue.run(batch_size=common.ORDER["batch_size"], dequeue_timeout=timedelta(seconds=30))


if __name__ == "__main__":
    common.main(install=install, producer=producer, worker=worker, run=uvloop.run)
