"""docs/tutorial/order-payment-shipment.md: two steps, one line between them, and what can go wrong."""

import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.testing.sandbox import Sandbox
from support.commands import app
from support.database import Database
from support.documents import DOCS, code
from support.engine import Connection, rows, value

PAGE = DOCS / "tutorial" / "order-payment-shipment.md"
NUDGE = "  perform queues.nudge(payment.waiting_payment_supervisor(_id));\n"


def _holdfast(db: Database, *words: str) -> str:
    answer = CliRunner().invoke(app, ["process", *words, "--database-url", db.dsn])
    assert answer.exit_code == 0, answer.output
    return answer.output


@pytest.fixture
def shop(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """Both processes, made by the commands of the page, and its one line put where it says."""
    monkeypatch.chdir(tmp_path)
    for name in ("payment", "shipment"):
        _holdfast(db, "new", name)
        monkeypatch.syspath_prepend(tmp_path / name)
    (patch,) = code(PAGE.read_text(), "diff")
    (line,) = [found[1:] for found in patch.splitlines(keepends=True) if found.startswith("+  ")]
    handlers = (tmp_path / "payment" / "3_handlers.sql").read_text()
    db.connect().execute(handlers.replace(NUDGE, line + NUDGE, 1).encode())
    with closing(Sandbox(db.dsn)) as sandbox:
        for name in ("payment", "shipment"):
            sandbox.use(import_module(name).app)
        yield sandbox
    for name in ("payment", "shipment"):
        del sys.modules[name]


@pytest.fixture
def conn(db: Database) -> Connection:
    return db.connect()


def _decisions(conn: Connection, name: str) -> list[str]:
    found = rows(conn, f"select decision from {name}.{name}_task_supervised order by run")
    return [row["decision"] for row in found]


def _order(conn: Connection) -> None:
    conn.execute("""select payment.kickoff_payment_task('{"order": 7}')""")


def test_what_is_paid_for_is_shipped(shop: Sandbox, db: Database, conn: Connection) -> None:
    assert _holdfast(db, "check", "payment") == "payment: all checks passed\n"
    _order(conn)
    shop.drain(until=timedelta(minutes=1))

    assert _decisions(conn, "payment") == _decisions(conn, "shipment") == ["attempt", "succeeded"]
    assert value(conn, "select input from shipment.shipment_task") == {"order": 7}
    assert shop.enqueued() == []


def test_what_is_not_paid_for_is_not_shipped(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def decline(given: Any) -> Any:
        raise RuntimeError(f"card declined for {given['order']}")

    monkeypatch.setattr(sys.modules["payment"], "work", decline)
    _order(conn)
    shop.drain(until=timedelta(minutes=1))

    assert _decisions(conn, "payment") == ["attempt", "attempt", "failed"]
    assert rows(conn, "select from shipment.shipment_task") == []


def test_an_order_that_is_rolled_back_never_was(shop: Sandbox, conn: Connection) -> None:
    with conn.transaction(force_rollback=True):
        _order(conn)

    assert shop.drain() == []
    assert rows(conn, "select from payment.payment_task") == []
