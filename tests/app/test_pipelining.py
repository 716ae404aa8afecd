"""Statements of a large batch: sent while the server works on those before them, and built in turns."""

import asyncio
from typing import Any

import psycopg
import pytest

from holdfast import App
from holdfast._connections import client, enqueueing, session
from holdfast._engine import statement
from holdfast._engine.enqueue import enqueue_many
from holdfast.errors import TooLarge
from support.database import Database


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_refusal_that_is_read_with_the_rows_before_it_names_its_place(
    db: Database, app: App, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """The server has answered all that was sent when the first rows are read."""

    @app.task("billing.charge")
    def charge(invoice_id: int, note: str = "") -> str:
        return f"charged {invoice_id}{note}"

    name = "_async_fetched" if is_async else "_fetched"
    fetch = getattr(statement, name)
    watching = db.connect()

    def fetch_late(cursor: Any, sent: Any) -> Any:
        connection = cursor.connection
        connection.pgconn.send_flush_request()
        while connection.pgconn.flush():
            pass
        asked = "select from pg_stat_activity where pid = %s and wait_event = 'ClientRead'"
        while not watching.execute(asked, [connection.info.backend_pid]).fetchall():
            pass
        return fetch(cursor, sent)

    monkeypatch.setattr(statement, name, fetch_late)
    calls: list[dict[str, Any]] = [{"invoice_id": n} for n in range(1000)]
    calls[700]["note"] = "x" * 300_000
    enqueueing = charge.aenqueue_many(calls) if is_async else asyncio.to_thread(charge.enqueue_many, calls)
    with pytest.raises(TooLarge, match=r"tasks\[700\]\.payload"):
        await enqueueing


@pytest.mark.parametrize("path", ["own transaction", "front", "tx", "then"])
async def test_the_event_loop_does_other_things_while_a_large_batch_is_built(
    db: Database, app: App, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    @app.task("billing.charge")
    def charge(invoice_id: int) -> None: ...

    turns = 0
    built: list[int] = []
    build = enqueue_many

    async def do_other_things() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def build_watched(tasks: Any) -> Any:
        built.append(turns)
        return build(tasks)

    monkeypatch.setattr(enqueueing, "enqueue_many", build_watched)
    facts = session.PLAIN._replace(is_front=path == "front")
    monkeypatch.setattr(client, "facts_of", lambda _: facts)
    tasks = [charge.build(n) for n in range(4 * enqueueing.MAX_TASKS_AHEAD)]
    other = asyncio.create_task(do_other_things())
    if path == "tx":
        async with await psycopg.AsyncConnection.connect(db.dsn) as tx:
            batch = await app.aenqueue_many(tasks, tx=tx)
    else:
        batch = await app.aenqueue_many(tasks, then=charge.build(0) if path == "then" else None)
    other.cancel()
    assert len({handle.task_id for handle in batch}) == len(tasks)
    assert len(built) == len(set(built)) == 4


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_refusal_in_a_transaction_names_its_place_in_the_whole_batch(
    db: Database, app: App, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    monkeypatch.setattr(enqueueing, "MAX_TASKS", 500)

    @app.task("billing.charge")
    def charge(note: str) -> None: ...

    tasks = [charge.build("x" * (300_000 if n == 700 else 1)) for n in range(1000)]
    expected = pytest.raises(TooLarge, match=r"tasks\[700\]\.payload")
    if is_async:
        async with await psycopg.AsyncConnection.connect(db.dsn) as tx:
            with expected:
                await app.aenqueue_many(tasks, tx=tx)
    else:
        with psycopg.connect(db.dsn) as blocking, expected:
            app.enqueue_many(tasks, tx=blocking)
