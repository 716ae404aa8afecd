"""An application of the test's own, on a database of the test's own."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import App
from support.database import Database
from support.drain import drain


@pytest.fixture
def app(db: Database) -> Iterator[App]:
    app = App(db.dsn)
    yield app
    app.close()


@pytest.fixture
def work(app: App, db: Database) -> Callable[[], int]:
    """Run all that is due, in a thread, so that it also works where the test has an event loop."""

    def run() -> int:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(drain, app, db.connect()).result()

    return run


@pytest.fixture(autouse=True)
def _leave_no_thread() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert not [thread for thread in left if thread.name.startswith("holdfast-wait")]
