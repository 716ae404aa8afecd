"""A front with four shards, and one with two for tests of one database; empty at the start of each test."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from holdfast import App
from holdfast._engine import Engine
from support.drain import drain
from support.sharded import (
    FrontDatabase,
    clear,
    filled_tables,
    front_for_tests_of_one_database,
    sharded_server,
)
from support.web import Web, serving, web_dsn


@pytest.fixture(scope="session")
def shared_front() -> Iterator[FrontDatabase]:
    with sharded_server() as front:
        yield front


@pytest.fixture(scope="session")
def kept_tables(shared_front: FrontDatabase) -> set[str]:
    return filled_tables(shared_front.server, shared_front.shards[0].name)


@pytest.fixture
def front(shared_front: FrontDatabase, kept_tables: set[str]) -> Iterator[FrontDatabase]:
    yield shared_front
    shared_front.close()
    clear(shared_front, kept_tables)


@pytest.fixture(scope="session")
def worker_front(shared_front: FrontDatabase) -> FrontDatabase:
    """For tests of one database: they also act as workers."""
    return front_for_tests_of_one_database(shared_front)


@pytest.fixture(scope="module")
def module_db(worker_front: FrontDatabase, kept_tables: set[str]) -> Iterator[FrontDatabase]:
    yield worker_front
    worker_front.close()
    clear(worker_front, kept_tables)


@pytest.fixture(scope="module")
def web(module_db: FrontDatabase) -> Iterator[Web]:
    web_dsn(module_db)
    module_db.map_logins()
    with serving(module_db) as running:
        yield running


@pytest.fixture
def engine(web: Web) -> Engine:
    return web.engine


@pytest.fixture
def admin(web: Web) -> httpx.Client:
    return web.client("admin")


@pytest.fixture
def reader(web: Web) -> httpx.Client:
    return web.client("read")


@pytest.fixture
def shop(web: Web) -> httpx.Client:
    return web.client("enqueue")


@pytest.fixture
def db(worker_front: FrontDatabase, kept_tables: set[str]) -> Iterator[FrontDatabase]:
    """What a test of one server calls its database."""
    yield worker_front
    worker_front.close()
    clear(worker_front, kept_tables)


@pytest.fixture
def empty_db(db: FrontDatabase) -> FrontDatabase:
    return db


@pytest.fixture
def app(db: FrontDatabase) -> Iterator[App]:
    app = App(db.dsn)
    yield app
    app.close()


@pytest.fixture
def work(app: App, db: FrontDatabase) -> Callable[[], int]:
    """Run all that is due on all shards, in a thread: the test may have an event loop."""

    def run() -> int:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(drain, app, db.connect()).result()

    return run
