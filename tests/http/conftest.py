"""A server per module, on a database of its own."""

from collections.abc import Iterator

import httpx
import pytest

from holdfast.engine import Engine
from holdfast.postgres import EmbeddedServer
from support.database import Database, cloned_database
from support.web import Web, serving


@pytest.fixture(scope="module")
def module_db(server: EmbeddedServer, template: str) -> Iterator[Database]:
    with cloned_database(server, template) as database:
        yield database


@pytest.fixture(scope="module")
def web(module_db: Database) -> Iterator[Web]:
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
