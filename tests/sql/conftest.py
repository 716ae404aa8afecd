"""For tests of single SQL functions."""

from collections.abc import Iterator
from importlib import import_module

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from holdfast._install.postgres.embedded_server import EmbeddedServer
from support.attacks import CANARY
from support.clock import Clock
from support.comms import CHANNELS, Channel
from support.database import Database, cloned_database
from support.engine import Connection, enqueue, rows
from support.invariant import assert_invariant
from support.outbox import subscribe


class _Session:
    """One connection for all tests, because a session compiles every function that it calls."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: Connection | None = None

    def connection(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._dsn, prepare_threshold=None)
        return self._connection

    def roll_back(self) -> None:
        """A test whose time was up may have left a running statement: then the next test connects anew."""
        connection = self.connection()
        if connection.info.transaction_status == TransactionStatus.ACTIVE:
            connection.cancel_safe()
            connection.close()
        else:
            connection.rollback()


@pytest.fixture(scope="session")
def _session(_shared_database: Database) -> Iterator[_Session]:
    session = _Session(_shared_database.dsn)
    yield session
    session.connection().close()


@pytest.fixture
def tx(_session: _Session) -> Iterator[Connection]:
    """A transaction of the test's own, rolled back at the end.

    Whatever the test did in it, every task still stands in exactly one place.
    """
    connection = _session.connection()
    try:
        yield connection
        assert_invariant(connection)
    finally:
        _session.roll_back()


@pytest.fixture
def clock(tx: Connection) -> Clock:
    """The clock of `tx`, which stands at noon."""
    return Clock(tx)


@pytest.fixture(params=CHANNELS, ids=lambda channel: channel.name)
def channel(request: pytest.FixtureRequest) -> Channel:
    """E-mail, and then text messages: what holds for one holds for the other."""
    given: Channel = request.param
    return given


@pytest.fixture
def subscription(tx: Connection, clock: Clock) -> int:
    """A subscription of `tx` to all events."""
    return subscribe(tx)


@pytest.fixture(scope="session")
def as_shipped(server: EmbeddedServer) -> str:
    """The name of a migrated database with the real clock, to be cloned."""
    name = "holdfast_as_shipped"
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute(f'create database "{name}"'.encode())
    import_module("holdfast._install.schema").migrate(server.url(name))
    return name


@pytest.fixture(scope="module")
def shipped(server: EmbeddedServer, as_shipped: str) -> Iterator[Database]:
    """What a user has after `holdfast migrate`, shared by the tests of a module."""
    with cloned_database(server, as_shipped) as database:
        yield database


@pytest.fixture
def admin(shipped: Database) -> Iterator[Connection]:
    """A session of the superuser there."""
    yield shipped.connect()
    shipped.close()


@pytest.fixture(scope="module")
def fortress(shipped: Database) -> Database:
    """A database as shipped, with a second client named mallory and a task whose payload is a secret."""
    admin = shipped.connect()
    if not rows(admin, "select from pg_roles where rolname = 'mallory'"):
        admin.execute("create role mallory login in role holdfast_client")
    admin.execute("create schema lair authorization mallory")
    client = shipped.connect("holdfast_client")
    enqueue(client, "vault.open", payload={"secret": CANARY}, idempotency_key="k", metadata={"m": CANARY})
    shipped.close()
    return shipped


@pytest.fixture
def castle(fortress: Database) -> Iterator[Database]:
    yield fortress
    fortress.close()


@pytest.fixture
def besieged(db: Database) -> Database:
    """A database with a client, and a login that has no role at all."""
    admin = db.connect()
    if not rows(admin, "select from pg_roles where rolname = 'stranger'"):
        admin.execute("create role stranger login")
    return db
