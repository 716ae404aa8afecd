"""The fixtures of the plugin."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from holdfast.testing.database import Databases
from holdfast.testing.sandbox import Sandbox
from holdfast.testing.server import Server, server_for_tests


@pytest.fixture(scope="session")
def holdfast_server() -> Iterator[Server]:
    """The server of HOLDFAST_TEST_DATABASE_URL, else one of its own for every process that runs tests."""
    with server_for_tests() as server:
        yield server


@pytest.fixture(scope="session")
def holdfast_prepare() -> Callable[[str], object]:
    """Called once with the address of the database that all others are copied from. Override it."""
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
    """A database of the test's own, with its clock, and ways to look at tasks and to run them."""
    with holdfast_databases.clone() as dsn, closing(Sandbox(dsn)) as sandbox:
        yield sandbox


def _nothing(dsn: str) -> None:
    del dsn
