"""Statements of a large batch that are sent while the server still works on those before them."""

import asyncio
from typing import Any

import pytest

from holdfast import App
from holdfast.engine import statement
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
