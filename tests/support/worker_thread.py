"""A real worker in a thread of the test, for as long as a block lasts."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.app import App
from holdfast.settings import Settings
from holdfast.worker import Worker


@contextmanager
def working(app: App, url: str, **options: Any) -> Iterator[None]:
    """Until the end of the block, due tasks of the app are run."""
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
