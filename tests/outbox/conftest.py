"""For tests of the dispatcher: one in the event loop of the test, on a database of the test's own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from holdfast.outbox.dispatcher import Dispatcher
from holdfast.settings import DispatcherSettings
from support.database import Database

HERE = "127.0.0.0/8,localhost"
Dispatching = Callable[..., AbstractAsyncContextManager[Dispatcher]]


@contextlib.asynccontextmanager
async def running(url: str, directory: Path, **settings: Any) -> AsyncIterator[Dispatcher]:
    usual = {"poll_interval": "1m", "grace": "5s", "outbox_directory": directory, "outbox_allow": HERE}
    dispatcher = Dispatcher(url, DispatcherSettings.load(**(usual | settings)))
    task = asyncio.create_task(dispatcher.run())
    try:
        async with asyncio.timeout(30):
            ready = asyncio.create_task(dispatcher.ready.wait())
            await asyncio.wait([ready, task], return_when=asyncio.FIRST_COMPLETED)
        yield dispatcher
    finally:
        dispatcher.stop()
        await task


@pytest.fixture
def dispatching(db: Database, tmp_path: Path) -> Dispatching:
    """Polls once a minute: what a test sees sooner was woken."""

    def start(**settings: Any) -> AbstractAsyncContextManager[Dispatcher]:
        return running(db.dsn_as("holdfast_dispatcher"), tmp_path / "events", **settings)

    return start
