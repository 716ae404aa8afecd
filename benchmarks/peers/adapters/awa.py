# mypy: disable-error-code="import-not-found", disallow-untyped-decorators=False
import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import awa

from benchmarks.peers.adapters import common

# Its driver wants a host, and then takes the socket from the query all the same.
URL = common.URL.replace("@/", "@localhost/")


@dataclass
class Noop:
    seq: int


async def install() -> None:
    """A first worker switches a fresh installation to its newer storage."""
    client = awa.AsyncClient(URL)
    await client.migrate()

    @client.task(Noop, queue="noop")
    async def noop(_job: Any) -> None:
        pass

    await client.start([{"name": "noop", "max_workers": 1}])
    await asyncio.sleep(5)
    await client.shutdown()
    await client.close()


@contextmanager
def producer() -> Iterator[common.Producer]:
    client = awa.Client(URL)
    yield common.Producer(
        lambda seq: client.insert(Noop(seq), queue="noop"),
        lambda seqs: client.enqueue_many_copy([Noop(seq) for seq in seqs], queue="noop"),
    )
    client.close()


async def worker() -> None:
    hit = common.hits_of_worker()
    client = awa.AsyncClient(URL, max_connections=20)

    @client.task(Noop, queue="noop")
    async def noop(job: Any) -> None:
        hit(job.args.seq)

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    common.ready()
    queue = {
        "name": "noop",
        "max_workers": common.ORDER["concurrency"],
        "claimers": common.ORDER["claimers"],
        "claim_batch_size": common.ORDER["claim_batch_size"],
    }
    await client.start([queue], poll_interval_ms=200)
    await stopped.wait()
    await client.shutdown()
    await client.close()


if __name__ == "__main__":
    common.main(install=install, producer=producer, worker=worker)
