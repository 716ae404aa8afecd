"""A server per module, on a database of its own, and those who use it."""

from collections.abc import Iterator

import httpx
import pytest

from holdfast._engine import Engine
from holdfast._install.postgres.embedded_server import EmbeddedServer
from support.database import Database, cloned_database
from support.visitor import Visitor
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


@pytest.fixture
def stranger(web: Web) -> Iterator[Visitor]:
    visitor = Visitor(web)
    yield visitor
    visitor.client.close()


@pytest.fixture
def anna(stranger: Visitor) -> Visitor:
    assert stranger.log_in("admin").status_code == 303
    return stranger
