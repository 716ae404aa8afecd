"""The fixtures of the plugin."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from holdfast.testing.database import Databases
from holdfast.testing.sandbox import Sandbox
from holdfast.testing.server import Server, server_for_tests


@pytest.fixture(scope="session")
def holdfast_server() -> Iterator[Server]:
    """The server of HOLDFAST_TEST_DATABASE_URL, or else a disposable one for each test process."""
    with server_for_tests() as server:
        yield server


@pytest.fixture(scope="session")
def holdfast_prepare() -> Callable[[str], object]:
    """Override it to prepare the database that all others are copied from: it is called once with the URL."""
    return _nothing


@pytest.fixture(scope="session")
def holdfast_databases(
    holdfast_server: Server, holdfast_prepare: Callable[[str], object]
) -> Iterator[Databases]:
    with closing(Databases(holdfast_server)) as databases:
        databases.make_template(holdfast_prepare)
        yield databases


@pytest.fixture
def holdfast(holdfast_databases: Databases) -> Iterator[Sandbox]:
    """A database for this test, with a clock, and methods to inspect and run tasks."""
    with holdfast_databases.clone() as dsn, closing(Sandbox(dsn)) as sandbox:
        yield sandbox


def _nothing(dsn: str) -> None:
    del dsn
