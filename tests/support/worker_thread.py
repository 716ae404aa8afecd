"""A real worker in a thread of the test, for as long as a block lasts."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from holdfast._worker.worker import Worker
from holdfast.app import App
from holdfast.settings import Settings


@contextmanager
def working(app: App, url: str, **options: Any) -> Iterator[None]:
    """Until the end of the block, due tasks of the app are run; behind a front, on each of its shards."""
    with ExitStack() as stack:
        for address in _databases(url):
            stack.enter_context(_working(app, address, **options))
        yield


def _databases(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        if connection.execute("select to_regclass('holdfast_front.shard')").fetchone() == (None,):
            return [url]
        found = connection.execute("select address from holdfast_front.list_shards()").fetchall()
        return [make_conninfo(address, user=connection.info.user) for (address,) in found]


@contextmanager
def _working(app: App, url: str, **options: Any) -> Iterator[None]:
    settings = Settings.load(database_url=url, **options)
    started = threading.Event()
    found: list[tuple[Worker, asyncio.AbstractEventLoop]] = []

    async def run() -> None:
        worker = Worker(app, url, settings)
        found.append((worker, asyncio.get_running_loop()))
        running = asyncio.create_task(worker.run())
        await worker.ready.wait()
        started.set()
        await running

    thread = threading.Thread(target=asyncio.run, args=(run(),), name="test-worker")
    thread.start()
    try:
        assert started.wait(30)
        yield
    finally:
        [(worker, loop)] = found
        loop.call_soon_threadsafe(worker.stop)
        thread.join(30)
