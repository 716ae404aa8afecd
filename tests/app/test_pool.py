"""Connections of the application's own: opened late, opened again, and never used to enqueue twice."""

import asyncio
import gc
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast import App, Task
from holdfast._connections import pool, session
from holdfast._connections.client import WAITING_SIZE
from holdfast.errors import DatabaseUnavailable, TransactionConflict
from holdfast.settings import Settings
from support.database import Database
from support.sessions import in_background

OURS = "pg_stat_activity where datname = current_database() and application_name = 'holdfast'"


@pytest.fixture
def charge(app: App) -> Task[..., None]:
    @app.task("billing.charge")
    def charge(invoice_id: int) -> None: ...

    return charge


def count(connection: psycopg.Connection[Any], what: str) -> int:
    row = connection.execute(f"select count(*) from {what}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def terminate(connection: psycopg.Connection[Any], which: str = "") -> None:
    """End our connections, and return when they have gone."""
    ended = connection.execute(f"select pg_terminate_backend(pid, 10000) from {OURS} {which}".encode())
    assert ended.fetchall()


def wait_until_blocked(connection: psycopg.Connection[Any], but: int = 0) -> int:
    """The process of ours that waits for a lock, and is not that one."""
    for _ in range(20_000):
        row = connection.execute(
            f"select pid from {OURS} and wait_event_type = 'Lock' and pid <> %s".encode(), [but]
        ).fetchone()
        if row:
            return int(row[0])
    raise AssertionError("nobody is blocked")


def test_an_app_opens_nothing_until_it_is_used(db: Database, app: App, charge: Task[..., None]) -> None:
    admin = db.connect()
    assert count(admin, OURS) == 0
    charge.enqueue(1)
    assert count(admin, OURS) == 1


def test_an_app_without_a_database_can_be_imported_and_says_so_when_used() -> None:
    app = App("host=nowhere.invalid connect_timeout=2")

    @app.task("nowhere.run")
    def run() -> None: ...

    with pytest.raises(DatabaseUnavailable, match="the database cannot be reached"):
        run.enqueue()


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(
    db: Database, charge: Task[..., None]
) -> None:
    admin = db.connect()
    for _ in range(3):
        charge.enqueue(1)
        terminate(admin)
    charge.enqueue(1)
    assert count(admin, "queues.task") == 4


async def test_an_event_loop_replaces_it_too(db: Database, charge: Task[..., None]) -> None:
    admin = db.connect()
    for _ in range(3):
        await charge.aenqueue(1)
        terminate(admin)
    await charge.aenqueue(1)
    assert count(admin, "queues.task") == 4


Enqueue = Callable[..., Any]


def in_thread(task: Task[..., None], *args: Any, **options: Any) -> Any:
    return task.using(**options).enqueue(*args)


def in_loop(task: Task[..., None], *args: Any, **options: Any) -> Any:
    async def enqueue() -> Any:
        return await task.using(**options).aenqueue(*args)

    return asyncio.run(enqueue())


@pytest.mark.parametrize("enqueue", [in_thread, in_loop])
def test_a_call_that_broke_is_not_repeated_if_that_could_enqueue_twice(
    db: Database, charge: Task[..., None], enqueue: Enqueue
) -> None:
    admin = db.connect()
    with db.connect(autocommit=False) as blocker:
        blocker.execute("lock table queues.task")
        with in_background(lambda: enqueue(charge, 1)) as enqueued:
            terminate(admin, f"and pid = {wait_until_blocked(admin)}")
            with pytest.raises(DatabaseUnavailable):
                enqueued.result(30)
    assert count(admin, "queues.task") == 0


@pytest.mark.parametrize("enqueue", [in_thread, in_loop])
def test_a_call_that_broke_is_repeated_if_it_has_a_key(
    db: Database, charge: Task[..., None], enqueue: Enqueue
) -> None:
    admin = db.connect()
    with db.connect(autocommit=False) as blocker:
        blocker.execute("lock table queues.task")
        with in_background(lambda: enqueue(charge, 1, key="k")) as enqueued:
            first = wait_until_blocked(admin)
            terminate(admin, f"and pid = {first}")
            wait_until_blocked(admin, but=first)
            blocker.rollback()
            assert enqueued.result(30).created
    assert count(admin, "queues.task") == 1


def test_threads_share_a_few_connections(
    db: Database, charge: Task[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(30) as threads:
        list(threads.map(charge.enqueue, range(300)))
    admin = db.connect()
    assert count(admin, "queues.task") == 300
    assert count(admin, OURS) <= pool.POOL_SIZE


async def test_calls_of_an_event_loop_do_not_wait_behind_a_large_batch(
    db: Database, charge: Task[..., None]
) -> None:
    admin = db.connect()
    with db.connect(autocommit=False) as blocker:
        charge.using(tx=blocker, key="taken").enqueue(1)
        batch = asyncio.create_task(charge.aenqueue_many([charge.using(key="taken").build(1)]))
        await asyncio.to_thread(wait_until_blocked, admin)
        handle = await charge.aenqueue(2)
        assert await handle.astatus() == "pending"
        assert not batch.done()
        blocker.rollback()
        await batch


async def test_a_key_that_a_transaction_holds_delays_no_other_call_of_the_event_loop(
    db: Database, charge: Task[..., None]
) -> None:
    taken = [f"taken {n}" for n in range(2 * WAITING_SIZE)]
    with db.connect(autocommit=False) as blocker:
        for key in taken:
            charge.using(tx=blocker, key=key).enqueue(1)
        held = [asyncio.create_task(charge.using(key=key).aenqueue(1)) for key in taken]
        # The first of them share a statement with those that wait, the others come later.
        for _ in range(2):
            free = [charge.using(key=key).aenqueue(1) for key in (None, str(uuid4()), str(uuid4()))]
            assert all(handle.created for handle in await asyncio.gather(*free))
        assert not any(one.done() for one in held)
        blocker.rollback()
        assert all(handle.created for handle in await asyncio.gather(*held))


async def test_only_the_caller_whose_key_is_held_for_too_long_is_told_to_try_again(db: Database) -> None:
    app = App(db.dsn, settings=Settings.load(call_timeout="1s"))

    @app.task("billing.charge")
    def charge(invoice_id: int) -> None: ...

    with db.connect(autocommit=False) as blocker:
        charge.using(tx=blocker, key="3").enqueue(1)
        calls = [charge.using(key=str(n)).aenqueue(1) for n in range(6)]
        answers = await asyncio.gather(*calls, charge.aenqueue(1), return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if isinstance(answer, TransactionConflict)] == [3]
    assert [n for n, answer in enumerate(answers) if isinstance(answer, BaseException)] == [3]
    app.close()


def test_an_event_loop_that_ended_leaves_no_connection(
    db: Database, app: App, charge: Task[..., None]
) -> None:
    admin = db.connect()
    for _ in range(3):
        in_loop(charge, 1)
    assert count(admin, "queues.task") == 3
    assert count(admin, OURS) <= 2


def test_a_closed_app_has_no_connection_and_can_be_used_again(
    db: Database, app: App, charge: Task[..., None]
) -> None:
    admin = db.connect()
    handle = charge.enqueue(1)
    with pytest.raises(TimeoutError):
        handle.result(0)
    in_loop(charge, 2)
    app.close()
    wait_until_gone(admin)
    charge.enqueue(3)
    assert count(admin, "queues.task") == 3


def wait_until_gone(connection: psycopg.Connection[Any]) -> None:
    for _ in range(20_000):
        if count(connection, OURS) == 0:
            return
    raise AssertionError("some connection is left")


def test_an_app_that_is_forgotten_closes_what_it_opened(db: Database) -> None:
    def use() -> None:
        app = App(db.dsn)

        @app.task("forgotten.run")
        def run() -> None: ...

        run.enqueue()
        in_loop(run)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use()
        gc.collect()
    wait_until_gone(db.connect())


def test_a_fork_opens_connections_of_its_own(db: Database) -> None:
    script = """
        import os, sys
        from holdfast import App
        app = App(sys.argv[1])
        @app.task("fork.run")
        def run(n: int) -> None: ...
        run.enqueue(1)
        child = os.fork()
        run.enqueue(2)
        if child:
            assert os.waitpid(child, 0)[1] == 0
            run.enqueue(3)  # the child's end has not ended the connection of its parent
            assert app.connect()._pool._idle._engines[0].connection.info.backend_pid
        """
    command = [sys.executable, "-c", dedent(script), db.dsn]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert count(db.connect(), "queues.task") == 4


def test_behind_a_pooler_nothing_is_prepared_and_nobody_listens(
    db: Database, app: App, charge: Task[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "is_pooled", lambda *_: True)
    handle = [charge.enqueue(n) for n in range(10)][-1]
    with pytest.raises(TimeoutError):
        handle.result(0)
    assert [engine.connection.prepare_threshold for engine in app.connect()._pool._idle._engines] == [None]
    admin = db.connect()
    assert count(admin, f"{OURS} and query like 'listen%'") == 0


def test_the_connect_timeout_of_the_environment_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "connect_timeout=10" in session.with_defaults("host=db")
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "60")
    assert "connect_timeout" not in session.with_defaults("host=db")


def test_a_call_that_was_interrupted_leaves_no_connection_behind(db: Database) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    interrupted = pool.Pool(session.DatabaseAddress(lambda: db.dsn), reply_seconds=30)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            interrupted.run(interrupt, repeatable=True)
    wait_until_gone(db.connect())


def test_a_call_that_outlasts_its_app_closes_its_connection(
    db: Database, app: App, charge: Task[..., None]
) -> None:
    admin = db.connect()
    with db.connect(autocommit=False) as blocker:
        blocker.execute("lock table queues.task")
        with in_background(lambda: charge.enqueue(1)) as enqueued:
            wait_until_blocked(admin)
            app.close()
            blocker.rollback()
            enqueued.result(30)
    wait_until_gone(admin)


def test_an_event_loop_ends_although_the_server_never_answers() -> None:
    script = """
        import asyncio, socket
        from holdfast import App
        silent = socket.create_server(("127.0.0.1", 0))
        app = App(f"host=127.0.0.1 port={silent.getsockname()[1]} connect_timeout=60")
        @app.task("silent.run")
        def run() -> None: ...
        async def give_up() -> None:
            try:
                async with asyncio.timeout(0.2):
                    await run.aenqueue()
            except TimeoutError:
                print("given up")
        asyncio.run(give_up())
        """
    command = [sys.executable, "-c", dedent(script)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "given up\n", "")
