"""A task enqueued in the caller's transaction exists if that is committed, and never has if not."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import App, Handle, Task
from holdfast._connections.pool import open_connection
from holdfast._connections.session import DatabaseAddress, facts_of
from holdfast.errors import InvalidArgument, KeyConflict, NotInstalled
from support.database import Database
from support.django_project import django_connection
from support.proxy import Direction, Passage
from support.wire import Wire

Given = Any
"""What is passed as tx."""

Opening = Callable[..., Any]


@pytest.fixture
def charge(app: App) -> Task[..., str]:
    @app.task("billing.charge")
    def charge(invoice_id: int) -> str:
        return f"charged {invoice_id}"

    return charge


def enqueued(db: Database) -> int:
    row = db.connect().execute("select count(*) from queues.task").fetchone()
    assert row is not None
    return int(row[0])


def url_for(db: Database, driver: str) -> sqlalchemy.URL:
    parts = conninfo_to_dict(db.dsn)
    return sqlalchemy.URL.create(
        f"postgresql+{driver}",
        username=str(parts["user"]),
        database=str(parts["dbname"]),
        query={"host": str(parts["host"]), "port": str(parts["port"])},
    )


# Each opens a transaction, gives what a user would pass as tx, and commits it or rolls it back.


@contextmanager
def psycopg_connection(db: Database, commit: bool) -> Iterator[Given]:
    connection = db.connect(autocommit=False)
    yield connection
    connection.commit() if commit else connection.rollback()


@contextmanager
def psycopg_with_dict_rows(db: Database, commit: bool) -> Iterator[Given]:
    connection = db.connect()
    connection.row_factory = dict_row
    connection.cursor_factory = psycopg.ClientCursor
    with connection.transaction(force_rollback=not commit):
        yield connection


@contextmanager
def sqlalchemy_connection(db: Database, commit: bool) -> Iterator[Given]:
    engine = sqlalchemy.create_engine(url_for(db, "psycopg"))
    with engine.connect() as connection:
        yield connection
        connection.commit() if commit else connection.rollback()
    engine.dispose()


@contextmanager
def sqlalchemy_session(db: Database, commit: bool) -> Iterator[Given]:
    engine = sqlalchemy.create_engine(url_for(db, "psycopg"))
    with Session(engine) as session:
        yield session
        session.commit() if commit else session.rollback()
    engine.dispose()


@contextmanager
def sqlalchemy_scoped_session(db: Database, commit: bool) -> Iterator[Given]:
    engine = sqlalchemy.create_engine(url_for(db, "psycopg"))
    session = scoped_session(sessionmaker(engine))
    yield session
    session.commit() if commit else session.rollback()
    session.remove()
    engine.dispose()


@contextmanager
def django(db: Database, commit: bool) -> Iterator[Given]:
    with django_connection(db.dsn) as connection:
        connection.set_autocommit(False)
        yield connection
        connection.commit() if commit else connection.rollback()


@contextmanager
def django_proxy(db: Database, commit: bool) -> Iterator[Given]:
    from django.db import connection, transaction

    with django_connection(db.dsn), transaction.atomic():
        yield connection
        transaction.set_rollback(not commit)


@contextmanager
def django_alias(db: Database, commit: bool) -> Iterator[Given]:
    from django.db import transaction

    with django_connection(db.dsn), transaction.atomic("default"):
        yield "default"
        transaction.set_rollback(not commit)


@asynccontextmanager
async def psycopg_async(db: Database, commit: bool) -> AsyncIterator[Given]:
    async with await psycopg.AsyncConnection.connect(db.dsn) as connection:
        yield connection
        await (connection.commit() if commit else connection.rollback())


@asynccontextmanager
async def asyncpg_connection(db: Database, commit: bool) -> AsyncIterator[Given]:
    connection = await asyncpg.connect(db.dsn)
    transaction = connection.transaction()
    await transaction.start()
    yield connection
    await (transaction.commit() if commit else transaction.rollback())
    await connection.close()


@asynccontextmanager
async def asyncpg_from_a_pool(db: Database, commit: bool) -> AsyncIterator[Given]:
    async with asyncpg.create_pool(db.dsn, min_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield connection
        await (transaction.commit() if commit else transaction.rollback())


@asynccontextmanager
async def sqlalchemy_async_connection(db: Database, commit: bool) -> AsyncIterator[Given]:
    engine = create_async_engine(url_for(db, "psycopg"))
    async with engine.connect() as connection:
        yield connection
        await (connection.commit() if commit else connection.rollback())
    await engine.dispose()


@asynccontextmanager
async def sqlalchemy_async_session(db: Database, commit: bool) -> AsyncIterator[Given]:
    engine = create_async_engine(url_for(db, "psycopg"))
    async with AsyncSession(engine) as session:
        yield session
        await (session.commit() if commit else session.rollback())
    await engine.dispose()


@asynccontextmanager
async def sqlalchemy_asyncpg_session(db: Database, commit: bool) -> AsyncIterator[Given]:
    engine = create_async_engine(url_for(db, "asyncpg"))
    async with AsyncSession(engine) as session:
        yield session
        await (session.commit() if commit else session.rollback())
    await engine.dispose()


@asynccontextmanager
async def sqlalchemy_async_scoped_session(db: Database, commit: bool) -> AsyncIterator[Given]:
    from sqlalchemy.ext.asyncio import async_sessionmaker

    engine = create_async_engine(url_for(db, "psycopg"))
    session = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
    yield session
    await (session.commit() if commit else session.rollback())
    await session.remove()
    await engine.dispose()


SYNC = [
    psycopg_connection,
    psycopg_with_dict_rows,
    sqlalchemy_connection,
    sqlalchemy_session,
    sqlalchemy_scoped_session,
    django,
    django_proxy,
    django_alias,
]
ASYNC = [
    psycopg_async,
    asyncpg_connection,
    asyncpg_from_a_pool,
    sqlalchemy_async_connection,
    sqlalchemy_async_session,
    sqlalchemy_asyncpg_session,
    sqlalchemy_async_scoped_session,
]


def many(charge: Task[..., str]) -> list[Any]:
    return [(3,), charge.using(delay=60, key="100%").build(4)]


OPTIONS: dict[str, Any] = {
    "delay": 30,
    "priority": 2,
    "queue": "q",
    "max_attempts": 7,
    "timeout": 5,
    "metadata": {"%s": "100%"},
}


@pytest.mark.parametrize("transaction", SYNC)
def test_a_rollback_makes_the_task_never_have_been_and_a_commit_makes_it_exist(
    db: Database, charge: Task[..., str], transaction: Opening
) -> None:
    def enqueue_all(tx: Given) -> list[Handle[str]]:
        plain = charge.using(tx=tx).enqueue(1)
        keyed = charge.using(key="k", tx=tx, **OPTIONS).enqueue(2)
        assert not charge.using(key="k", tx=tx, **OPTIONS).enqueue(2).created
        return [plain, keyed, *charge.using(tx=tx).enqueue_many(many(charge))]

    with transaction(db, commit=False) as tx:
        enqueue_all(tx)
    assert enqueued(db) == 0
    with transaction(db, commit=True) as tx:
        handles = enqueue_all(tx)
        assert enqueued(db) == 0
    assert enqueued(db) == 4
    assert [handle.status() for handle in handles] == ["pending", "scheduled", "pending", "scheduled"]


@pytest.mark.parametrize("transaction", ASYNC)
async def test_a_rollback_and_a_commit_do_the_same_in_an_event_loop(
    db: Database, charge: Task[..., str], transaction: Opening
) -> None:
    async def enqueue_all(tx: Given) -> list[Handle[str]]:
        plain = await charge.using(tx=tx).aenqueue(1)
        keyed = await charge.using(key="k", tx=tx, **OPTIONS).aenqueue(2)
        assert not (await charge.using(key="k", tx=tx, **OPTIONS).aenqueue(2)).created
        return [plain, keyed, *await charge.using(tx=tx).aenqueue_many(many(charge))]

    async with transaction(db, commit=False) as tx:
        await enqueue_all(tx)
    assert enqueued(db) == 0
    async with transaction(db, commit=True) as tx:
        handles = await enqueue_all(tx)
        assert enqueued(db) == 0
    assert enqueued(db) == 4
    assert [await handle.astatus() for handle in handles] == ["pending", "scheduled", "pending", "scheduled"]


class CountingWire(Wire):
    """A way to the database that counts round trips and keeps the texts of statements."""

    def __init__(self, db: Database) -> None:
        super().__init__(db.dsn, Random(0))  # noqa: S311 - disturbs nothing
        self.round_trips = 0
        self.texts: list[bytes] = []

    async def _follow(self, kind: bytes, message: bytes, passage: Passage, way: Direction) -> None:
        await super()._follow(kind, message, passage, way)
        if way == "to the server":
            self.round_trips += kind in (b"S", b"Q")
            self.texts += [message] if kind in (b"P", b"Q") else []


@pytest.fixture
def _unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGSSLMODE", "PGGSSENCMODE"):
        monkeypatch.setenv(name, "disable")


class DatabaseBehind(Database):
    """The same database, at the address of a proxy."""

    def __init__(self, db: Database, wire: Wire) -> None:
        super().__init__(db.server, db.name)
        user = conninfo_to_dict(db.dsn)["user"]
        self.url = f"postgresql://{user}@127.0.0.1:{wire.port}/{db.name}"

    @property
    def dsn(self) -> str:
        return self.url


@pytest.mark.parametrize("transaction", SYNC)
@pytest.mark.usefixtures("_unencrypted")
def test_an_enqueue_is_one_round_trip(db: Database, charge: Task[..., str], transaction: Opening) -> None:
    with CountingWire(db).running() as wire:
        assert isinstance(wire, CountingWire)
        behind = DatabaseBehind(db, wire)
        with transaction(behind, commit=True) as tx:
            charge.using(tx=tx).enqueue(1)
            first = wire.round_trips
            charge.using(tx=tx).enqueue(2)
            assert wire.round_trips - first == 1
        behind.close()
    assert enqueued(db) == 2
    assert [text for text in wire.texts if b"holdfast_front" in text] == []


@pytest.mark.usefixtures("_unencrypted")
async def test_an_enqueue_is_one_round_trip_for_each_request_that_takes_its_connection_from_a_pool(
    db: Database, charge: Task[..., str]
) -> None:
    """A proxy of asyncpg is another object for each request, so nothing can be remembered about it."""
    with CountingWire(db).running() as wire:
        assert isinstance(wire, CountingWire)
        url = DatabaseBehind(db, wire).dsn
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
            costs = []
            for n in range(3):
                async with pool.acquire() as connection, connection.transaction():
                    first = wire.round_trips
                    await charge.using(tx=connection).aenqueue(n)
                    costs.append(wire.round_trips - first)
    assert costs[1:] == [1, 1]  # the first one prepares the statement
    assert [text for text in wire.texts if b"holdfast_front" in text] == []


@pytest.mark.parametrize("is_front", [False, True])
@pytest.mark.usefixtures("_unencrypted")
def test_only_the_first_connection_asks_whether_a_database_is_a_front(db: Database, is_front: bool) -> None:
    if is_front:
        with db.connect() as owner:
            owner.execute("create schema holdfast_front create table shard ()")
    with CountingWire(db).running() as wire:
        assert isinstance(wire, CountingWire)
        address = DatabaseAddress(lambda: DatabaseBehind(db, wire).dsn)
        for _ in range(3):
            with open_connection(address, 2.0) as connection:
                assert facts_of(connection).is_front == is_front
    assert len([text for text in wire.texts if b"holdfast_front" in text]) == 1


@pytest.mark.parametrize("transaction", ASYNC)
@pytest.mark.usefixtures("_unencrypted")
async def test_an_enqueue_is_one_round_trip_in_an_event_loop(
    db: Database, charge: Task[..., str], transaction: Opening
) -> None:
    with CountingWire(db).running() as wire:
        assert isinstance(wire, CountingWire)
        async with transaction(DatabaseBehind(db, wire), commit=True) as tx:
            await charge.using(tx=tx).aenqueue(1)
            first = wire.round_trips
            await charge.using(tx=tx).aenqueue(2)
            assert wire.round_trips - first == 1
    assert enqueued(db) == 2
    assert [text for text in wire.texts if b"holdfast_front" in text] == []


@pytest.mark.parametrize("transaction", SYNC)
def test_a_refusal_is_the_same_whoever_brings_it(
    db: Database, charge: Task[..., str], transaction: Opening
) -> None:
    charge.using(key="k").enqueue(1)
    with (
        transaction(db, commit=False) as tx,
        pytest.raises(KeyConflict, match="already belongs to task") as caught,
    ):
        charge.using(key="k", tx=tx).enqueue(2)
    assert caught.value.sqlstate == "QF409"
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("transaction", ASYNC)
async def test_a_refusal_is_the_same_in_an_event_loop(
    db: Database, charge: Task[..., str], transaction: Opening
) -> None:
    await charge.using(key="k").aenqueue(1)
    async with transaction(db, commit=False) as tx:
        with pytest.raises(KeyConflict, match="already belongs to task") as caught:
            await charge.using(key="k", tx=tx).aenqueue(2)
    assert caught.value.sqlstate == "QF409"


@pytest.mark.parametrize("transaction", [psycopg_connection, sqlalchemy_session])
def test_a_database_without_a_schema_says_what_to_do(
    db: Database, charge: Task[..., str], transaction: Opening
) -> None:
    db.connect().execute("drop schema queues cascade")
    with transaction(db, commit=False) as tx, pytest.raises(NotInstalled, match="holdfast migrate"):
        charge.using(tx=tx).enqueue(1)


@pytest.mark.parametrize("transaction", ASYNC)
async def test_an_asynchronous_transaction_asks_for_aenqueue(
    db: Database, charge: Task[..., str], transaction: Opening
) -> None:
    async with transaction(db, commit=False) as tx:
        with pytest.raises(InvalidArgument, match=r"tx is asynchronous \(.*\): await aenqueue instead"):
            charge.using(tx=tx).enqueue(1)
        with pytest.raises(InvalidArgument, match="await aenqueue_many instead"):
            charge.using(tx=tx).enqueue_many([(1,)])


@pytest.mark.parametrize("transaction", [psycopg_connection, sqlalchemy_connection, sqlalchemy_session])
async def test_a_synchronous_transaction_asks_for_enqueue(
    db: Database, charge: Task[..., str], transaction: Opening
) -> None:
    with transaction(db, commit=False) as tx:
        with pytest.raises(InvalidArgument, match=r"tx is synchronous \(.*\): call enqueue instead"):
            await charge.using(tx=tx).aenqueue(1)
        with pytest.raises(InvalidArgument, match="call enqueue_many instead"):
            await charge.using(tx=tx).aenqueue_many([(1,)])


def test_anything_else_gets_a_list_of_what_is_accepted(db: Database, charge: Task[..., str]) -> None:
    refused: list[Any] = [object(), db.connect().cursor(), db.dsn.encode(), 3]
    for tx in refused:
        with pytest.raises(
            InvalidArgument, match=r"tx cannot be .*Pass a psycopg Connection or Async.*Django"
        ):
            charge.using(tx=tx).enqueue(1)


def test_a_transaction_of_another_database_is_refused(charge: Task[..., str]) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as tx, pytest.raises(InvalidArgument, match="tx is a transaction of sqlite"):
        charge.using(tx=tx).enqueue(1)
    engine.dispose()


def test_an_alias_that_django_does_not_know_is_refused(db: Database, charge: Task[..., str]) -> None:
    with django_connection(db.dsn), pytest.raises(InvalidArgument, match="Django has no database 'other'"):
        charge.using(tx="other").enqueue(1)


async def test_a_class_derived_from_an_accepted_one_is_accepted(db: Database, charge: Task[..., str]) -> None:
    class OwnConnection(psycopg.Connection[Any]):
        pass

    with OwnConnection.connect(db.dsn) as tx:
        charge.using(tx=tx).enqueue(1)
    assert enqueued(db) == 1
