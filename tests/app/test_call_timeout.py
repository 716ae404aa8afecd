"""Calls end in time: behind a proxy that acknowledges and never answers, and while others hold locks."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from holdfast import App, Task
from holdfast._connections import pool
from holdfast._connections.pool import POOL_SIZE
from holdfast._connections.session import DatabaseAddress
from holdfast.errors import ConfigurationError, DatabaseUnavailable, NoAnswer, TransactionConflict
from holdfast.settings import Settings
from support.database import Database
from support.proxy import Proxy
from support.sessions import in_background

OURS = "pg_stat_activity where datname = current_database() and application_name = 'holdfast'"


@pytest.fixture
def proxy(db: Database) -> Iterator[Proxy]:
    with Proxy(db.dsn).running() as running:
        yield running


@pytest.fixture
def behind(proxy: Proxy) -> Iterator[Callable[..., Task[..., None]]]:
    """A task of an application whose way to the database is the proxy."""
    apps: list[App] = []

    def build(call_timeout: str) -> Task[..., None]:
        app = App(proxy.dsn, settings=Settings.load(call_timeout=call_timeout))
        apps.append(app)

        @app.task("billing.charge")
        def charge(invoice_id: int) -> None: ...

        return charge

    yield build
    for app in apps:
        app.close()


def one(db: Database, query: str) -> Any:
    row = db.connect().execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize("key", [None, "k"])
def test_a_call_that_is_never_answered_ends_with_an_error_that_says_so(
    proxy: Proxy, behind: Callable[..., Task[..., None]], key: str | None
) -> None:
    charge = behind("1s").using(key=key)
    charge.enqueue(1)
    proxy.freeze()
    with pytest.raises(NoAnswer, match=r"not answered for 1 s.*not known.*HOLDFAST_CALL_TIMEOUT"):
        charge.enqueue(1)


def test_more_silent_calls_than_connections_leave_all_places_free(
    db: Database, proxy: Proxy, behind: Callable[..., Task[..., None]]
) -> None:
    charge = behind("1s")
    charge.enqueue(1)
    proxy.freeze()
    with ThreadPoolExecutor(POOL_SIZE + 2) as threads:
        calls = [threads.submit(charge.enqueue, 1) for _ in range(POOL_SIZE + 2)]
        errors = {type(call.exception(60)) for call in calls}
    assert errors <= {NoAnswer, DatabaseUnavailable, TransactionConflict}
    proxy.thaw()
    with ThreadPoolExecutor(POOL_SIZE) as threads:
        assert len({one.task_id for one in threads.map(charge.enqueue, range(POOL_SIZE))}) == POOL_SIZE


async def test_in_an_event_loop_it_ends_as_well(proxy: Proxy, behind: Callable[..., Task[..., None]]) -> None:
    charge = behind("1s")
    handle = await charge.aenqueue(1)
    proxy.freeze()
    answers = await asyncio.gather(charge.aenqueue(1), handle.astatus(), return_exceptions=True)
    # One has the open connection, the other cannot open one.
    assert {type(answer) for answer in answers} == {NoAnswer, DatabaseUnavailable}
    proxy.thaw()
    assert await handle.astatus() == "pending"


@pytest.mark.parametrize("warm", [True, False])
def test_a_result_is_waited_for_no_longer_than_asked_although_nobody_answers(
    proxy: Proxy, behind: Callable[..., Task[..., None]], warm: bool
) -> None:
    handle = behind("30s").enqueue(1)
    if warm:
        with pytest.raises(TimeoutError, match="its status is pending"):
            handle.result(timeout=0)
    proxy.freeze()
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"did not end in time; its status is not known"):
        handle.result(timeout=1)
    assert time.monotonic() - began < 9  # to connect alone may take ten seconds


async def test_a_call_that_its_caller_gives_up_ends_at_once(
    proxy: Proxy, behind: Callable[..., Task[..., None]]
) -> None:
    handle = await behind("30s").aenqueue(1)
    await handle.astatus()
    proxy.freeze()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await handle.astatus()
    assert time.monotonic() - began < 4  # psycopg would wait for five seconds until the server cancels


def test_a_statement_that_waits_too_long_is_ended_by_the_server_and_nothing_is_written(
    db: Database, behind: Callable[..., Task[..., None]]
) -> None:
    charge = behind("1s")
    with db.connect(autocommit=False) as blocker:
        blocker.execute("lock table queues.task")
        with pytest.raises(TransactionConflict, match="statement timeout"):
            charge.enqueue(1)
        assert one(db, f"select count(*) from {OURS} and state = 'active'") == 0
    assert one(db, "select count(*) from queues.task") == 0


def test_a_call_for_which_no_connection_is_free_is_told_so(
    db: Database, behind: Callable[..., Task[..., None]]
) -> None:
    charge = behind("1s")
    pool = charge._home.connect()._pool
    for _ in range(POOL_SIZE):
        pool._slots.acquire()
    with in_background(lambda: charge.enqueue(1)) as refused, pytest.raises(TransactionConflict) as told:
        refused.result(30)
    assert str(told.value).startswith(
        f"all {POOL_SIZE} connections to the database were in use for 1 s; nothing was sent"
    )
    pool._slots.release()
    charge.enqueue(1)


def statement_timeout(connection: Any) -> str:
    return str(connection.execute("show statement_timeout").fetchone()[0])


def test_a_shorter_limit_of_the_login_stays(db: Database) -> None:
    shorter = make_conninfo(db.dsn, options="-c statement_timeout=200")
    for dsn, limit in ((db.dsn, "2s"), (shorter, "200ms")):
        with pool.open_connection(DatabaseAddress(partial(str, dsn)), 2) as connection:
            assert statement_timeout(connection) == limit


def test_a_pooler_is_not_given_a_limit_that_it_would_pass_on(db: Database) -> None:
    with db.connect() as pooled, db.connect() as other:
        pooled.execute(pool._first_statement(other, 2, None))
        assert statement_timeout(pooled) == "0"


def test_the_limit_is_a_setting_with_bounds() -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_CALL_TIMEOUT"):
        Settings.load(call_timeout="0s")
