"""A lost database is waited for and found again, with pauses, whatever became of it."""

import asyncio
import os
import time
from datetime import datetime
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._connections import session
from holdfast._connections.session import with_defaults
from holdfast._connections.worker_connection import DEADLINE_SECONDS, FORGET_SECONDS, Outage, WorkerConnection
from holdfast._engine import health
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._telemetry.logs import log_of
from holdfast.errors import DatabaseUnavailable, NotInstalled
from support.database import Database
from support.proxy import Proxy
from support.workshop import PATIENCE_SECONDS, Line, Workshop


@pytest.fixture(autouse=True)
def echo(shop: Workshop) -> None:
    @shop.task("work.echo")
    async def echo() -> str:
        return "done"


def connection_to(url: str) -> WorkerConnection:
    return WorkerConnection(url, Outage(log_of("test")), "test", lambda: None, asyncio.Event())


async def test_a_worker_goes_on_after_its_connections_were_cut(shop: Workshop) -> None:
    async with shop.working() as worker:
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue())
        assert await shop.terminate() >= 4  # a fifth, if its leading has begun
        row = await shop.ended(await shop.app.tasks["work.echo"].aenqueue())
        await shop.sees(lambda: worker.metrics.reconnects >= 3)
    assert row["status"] == "succeeded"


async def test_a_worker_waits_for_a_database_that_is_not_there_yet(shop: Workshop, proxy: Proxy) -> None:
    proxy.close()
    handle = await shop.app.tasks["work.echo"].aenqueue()
    worker = shop.worker(proxy.dsn)
    running = asyncio.create_task(worker.run())
    await shop.logged("database_unavailable", connection="claim")
    assert not worker.ready.is_set()
    proxy.open()
    await shop.ended(handle)
    worker.stop()
    assert await running == 0


async def test_an_outage_is_one_warning_and_one_line_that_says_how_long_it_lasted(
    shop: Workshop, proxy: Proxy
) -> None:
    async with shop.working(proxy.dsn, poll_interval="100ms", heartbeat="200ms", lease="3s"):
        await shop.logged("leading_started")
        proxy.close()
        for connection in ("claim", "listen", "heartbeat", "leader"):
            await shop.logged("database_unavailable", connection=connection)
        proxy.open()
        await shop.logged("database_back", level="info")
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue())
    loud = [line for line in shop.logs if line["level"] != "debug" and "error" in line]
    assert [line["event"] for line in loud] == ["database_unavailable"]
    assert len(shop.lines("database_back", level="info")) == 1


def test_an_outage_ends_without_the_connections_that_are_not_needed_any_more(
    logs: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    outage, gone = Outage(log_of("test")), DatabaseUnavailable("gone")
    outage.failed("release", gone)
    outage.failed("claim", gone)
    outage.failed("leader", gone)
    outage.forget("leader")
    now = 7.0
    outage.works("claim")
    now = FORGET_SECONDS + 1
    outage.works("claim")
    outage.failed("claim", gone)
    told = [(line["event"], line["level"]) for line in logs if line["level"] != "debug"]
    assert told == [
        ("database_unavailable", "warning"),
        ("database_back", "info"),
        ("database_unavailable", "warning"),
    ]
    assert next(line for line in logs if line["level"] == "info")["after_seconds"] == 7.0


async def test_a_worker_that_waits_for_its_database_stops_when_asked(shop: Workshop, proxy: Proxy) -> None:
    proxy.close()
    worker = shop.worker(proxy.dsn)
    running = asyncio.create_task(worker.run())
    await shop.logged("database_unavailable")
    worker.stop()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await running == 0


async def test_a_database_without_the_schema_stops_the_start(shop: Workshop, server: EmbeddedServer) -> None:
    with pytest.raises(NotInstalled, match="holdfast migrate"):
        await shop.worker(server.url("postgres")).run()


async def test_a_server_that_became_read_only_is_left_and_tried_again(shop: Workshop) -> None:
    async with shop.working(poll_interval="100ms") as worker:
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue())
        shop.conn.execute(f'alter database "{shop.db.name}" set default_transaction_read_only = on')
        await shop.terminate()
        await shop.logged("database_unavailable", connection="claim")
        opened = worker.metrics.reconnects
        await shop.sees(lambda: worker.metrics.reconnects > opened + 1)
        shop.conn.execute("set default_transaction_read_only = off")
        shop.conn.execute(f'alter database "{shop.db.name}" set default_transaction_read_only = off')
        shop.conn.execute("select queues.enqueue('work.echo')")
        await shop.until(
            "select from queues.task_status having count(*) filter (where status = 'succeeded') = 2"
        )


def test_of_several_hosts_the_one_that_can_be_written_to_is_meant() -> None:
    several = conninfo_to_dict(with_defaults("host=one,two port=1,2", worker=True))
    assert several["target_session_attrs"] == "read-write"
    assert "target_session_attrs" not in conninfo_to_dict(with_defaults("host=one", worker=True))
    assert "target_session_attrs" not in conninfo_to_dict(with_defaults("host=one,two"))


async def test_a_host_that_is_gone_is_passed_over(shop: Workshop, db: Database) -> None:
    address = conninfo_to_dict(db.dsn)
    url = make_conninfo(
        db.dsn, host=f"/nonexistent,{address['host']}", port=f"{address['port']},{address['port']}"
    )
    async with shop.working(url):
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue())


async def test_an_address_may_set_what_we_would_have_set() -> None:
    assert conninfo_to_dict(with_defaults("host=db connect_timeout=60"))["connect_timeout"] == "60"


async def test_a_statement_without_an_answer_is_given_up(proxy: Proxy) -> None:
    worker_connection = connection_to(proxy.dsn)
    await worker_connection.run(health.clock)
    proxy.freeze()
    asked = time.monotonic()
    with pytest.raises(DatabaseUnavailable):
        await worker_connection.run(health.clock, seconds=0.2)
    assert time.monotonic() - asked < DEADLINE_SECONDS / 2
    proxy.thaw()
    await worker_connection.run(health.clock)
    await worker_connection.close()


async def test_a_prepared_statement_is_sent_at_once_unless_another_one_is_under_way(db: Database) -> None:
    worker_connection = connection_to(db.dsn)
    clock = health.clock()
    answers: asyncio.Queue[object] = asyncio.Queue()
    assert not worker_connection.run_now(clock, answers.put_nowait)  # it is not even connected
    for _ in range(2):
        await worker_connection.run(lambda: clock)

    assert worker_connection.run_now(clock, answers.put_nowait)
    assert not worker_connection.run_now(clock, answers.put_nowait)

    assert isinstance(await worker_connection.run(lambda: clock), datetime)  # it waits for its turn
    assert isinstance(answers.get_nowait(), datetime)
    await worker_connection.close()


async def _sent_at_once(proxy: Proxy) -> tuple[WorkerConnection, asyncio.Queue[object]]:
    """A statement without an answer, because the proxy is frozen."""
    worker_connection = connection_to(proxy.dsn)
    for _ in range(2):
        await worker_connection.run(health.clock)
    answers: asyncio.Queue[object] = asyncio.Queue()
    proxy.freeze()
    assert worker_connection.run_now(health.clock(), answers.put_nowait)
    return worker_connection, answers


async def test_a_statement_that_was_sent_at_once_may_be_repeated_if_it_failed(proxy: Proxy) -> None:
    worker_connection, answers = await _sent_at_once(proxy)

    proxy.cut()
    assert await answers.get() is None
    proxy.thaw()
    await worker_connection.run(health.clock)
    await worker_connection.close()


async def test_a_statement_that_was_sent_at_once_is_given_up_if_no_answer_comes(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._connections.worker_connection.DEADLINE_SECONDS", 0.2)
    worker_connection, answers = await _sent_at_once(proxy)

    async with asyncio.timeout(60):
        assert await answers.get() is None
    proxy.thaw()
    await worker_connection.run(health.clock)
    await worker_connection.close()


async def test_an_answer_is_read_although_a_reader_was_left_behind_under_the_number_of_its_socket(
    db: Database,
) -> None:
    """libpq closes the descriptor of a lost connection while the event loop still has a reader for it."""
    loop = asyncio.get_running_loop()
    worker_connection = connection_to(db.dsn)
    answers: asyncio.Queue[object] = asyncio.Queue()
    pipes = [os.pipe() for _ in range(20)]
    for reading, writing in pipes:
        loop.add_reader(reading, lambda: None)
        loop.add_reader(writing, lambda: None)
    for descriptors in pipes:
        for descriptor in descriptors:
            os.close(descriptor)
    for _ in range(2):
        await worker_connection.run(health.clock)
    assert worker_connection.run_now(health.clock(), answers.put_nowait)

    async with asyncio.timeout(10):
        assert isinstance(await answers.get(), datetime)
    await worker_connection.close()


async def test_the_pause_grows_until_answers_come_and_is_never_the_same(
    logs: list[Line], db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_connection = connection_to(db.dsn)
    monkeypatch.setattr(asyncio, "timeout", lambda _: asyncio.timeout_at(0))
    for _ in range(12):
        await worker_connection.pause(DatabaseUnavailable("gone"))
    pauses = [line["retry_in"] for line in logs if line["event"] == "database_unavailable"]
    assert pauses[0] <= 0.2
    assert all(2.5 <= pause <= 5 for pause in pauses[-4:])
    assert len(set(pauses[-6:])) > 1
    monkeypatch.undo()
    await worker_connection.run(health.clock)
    await worker_connection.close()
    levels = [line["level"] for line in logs if line["event"] in ("database_unavailable", "database_back")]
    assert levels == ["warning", *["debug"] * 11, "info"]
    assert not worker_connection.failing


async def test_a_powerful_login_acts_as_a_worker_only(shop: Workshop) -> None:
    worker_connection = connection_to(shop.db.dsn)
    cursor = await (await worker_connection.connection()).execute("select session_user, current_user")
    assert await cursor.fetchone() == ("postgres", "holdfast_worker")
    await worker_connection.close()


async def test_a_login_with_the_rights_of_a_worker_is_enough(shop: Workshop) -> None:
    async with shop.working(shop.db.dsn_as("holdfast_worker")):
        row = await shop.ended(await shop.app.tasks["work.echo"].aenqueue())
    assert row["status"] == "succeeded"


async def test_behind_a_pooler_nothing_is_prepared_and_no_role_is_set(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "is_pooled", lambda *_: True)
    worker_connection = connection_to(shop.db.dsn)
    connection: Any = await worker_connection.connection()
    cursor = await connection.execute("select current_user")
    assert await cursor.fetchone() == ("postgres",)
    assert connection.prepare_threshold is None
    await worker_connection.close()
