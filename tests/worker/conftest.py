"""A worker in the event loop of the test, on a database of the test's own."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import structlog

from holdfast.isolation import process_tree
from holdfast.settings import Settings, variable_of
from support import hostile
from support.database import Database
from support.message_tasks import install
from support.processes import is_ours
from support.proxy import Proxy
from support.scripted_provider import PostOffice
from support.workshop import Line, Workshop


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable_of(name), raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def logs() -> Iterator[list[Line]]:
    """Every line that is logged, as fields."""
    lines: list[Line] = []

    def keep(logger: object, method: str, event: Any) -> Any:
        lines.append({**event, "level": method})
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, keep],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )
    yield lines
    structlog.reset_defaults()


@pytest.fixture
def broken_logs(logs: list[Line]) -> None:
    """From now on nothing can be written: standard error is a pipe that nobody reads any more."""

    def fail(*_: object) -> Any:
        raise BrokenPipeError

    del logs
    structlog.configure(processors=[fail])


@pytest.fixture
async def shop(db: Database, logs: list[Line]) -> AsyncIterator[Workshop]:
    shop = Workshop(db, logs)
    yield shop
    await shop.close()
    left = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
    assert not [task for task in left if "holdfast" in repr(task)], "the worker has left tasks behind"
    threads = {thread.name for thread in threading.enumerate()}
    assert not threads & {"holdfast-heartbeat", "holdfast-leader", "holdfast-watchdog"}


@pytest.fixture
async def works(shop: Workshop) -> AsyncIterator[Workshop]:
    """A workshop for the hostile application; when it closes, nothing that it started may be left."""
    shop.app = hostile.app
    with hostile.app.at(shop.db.dsn):
        yield shop
    assert [pid for pid in process_tree.family_of(os.getpid()) if is_ours(pid)] == []


@pytest.fixture
def proxy(db: Database) -> Iterator[Proxy]:
    """A way to the database that the test can cut, freeze or close."""
    with Proxy(db.dsn).running() as running:
        yield running


@pytest.fixture
def post_office() -> PostOffice:
    return PostOffice()


@pytest.fixture
def messages(shop: Workshop, post_office: PostOffice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that send a message, with this provider."""
    install(shop, post_office, monkeypatch)
