"""A migration keeps what a database at version 1 of the schema contains, also beside a worker."""

import json
from threading import Event
from typing import Any

import pytest

from holdfast import App, Context
from holdfast._install.schema import SCHEMA_VERSION, migrate
from support.database import Database
from support.releases import Release
from support.worker_thread import working

TABLES = """
  select c.oid::regclass::text from pg_class c
  where c.relnamespace in ('queues'::regnamespace, 'comms'::regnamespace) and c.relkind in ('r', 'p')
    and not c.relispartition and c.relname not in ('installation', 'unit')
  order by 1
"""
STEPS = [
    {"name": "charge", "number": 1, "kind": "step", "tries": 2, "took_ms": 3, "result": "paid"},
]


def contents(database: Database) -> dict[str, list[Any]]:
    """All rows of all tables that have any."""
    connection = database.connect()
    tables = [name for (name,) in connection.execute(TABLES).fetchall()]
    found = {
        table: connection.execute(f"select to_jsonb(t) from {table} t order by t::text".encode()).fetchall()
        for table in tables
    }
    return {table: rows for table, rows in found.items() if rows}


def fill(database: Database) -> None:
    """Tasks that wait, run and have ended, a run after its first step, a schedule, events and a message."""
    admin = database.connect()
    admin.execute("select queues.subscribe('all', 'http', 'https://example.com/', '{task.succeeded}')")
    admin.execute("select queues.add_schedule('nightly', 'shop.sweep', cron => '0 3 * * *')")
    message = "comms.create_email_message('ada@example.com', 'Hello', 'A text')"
    admin.execute(f"select comms.kickoff_send_email_task({message})".encode())
    for count, status in ((1, "succeeded"), (2, "suspend"), (3, None)):
        admin.execute("select queues.enqueue('shop.order', %s)", [json.dumps({"order": count})])
        [(task_id, token)] = admin.execute(
            "select task_id, token from queues.claim('w', queues => '{shop}')"
        ).fetchall()
        if status:
            report = {"task_id": str(task_id), "token": token, "status": status, "steps": STEPS}
            if status == "suspend":
                waits = [{"name": "approval", "signal": "approval", "until": "2031-01-01Z"}]
                report |= {"run_at": "2031-01-01Z", "waits": waits}
            done = admin.execute("select verdict from queues.finish('w', %s)", [json.dumps([report])])
            assert done.fetchall() == [("accepted",)]
    admin.execute("select queues.enqueue('shop.order', '{\"order\": 4}', idempotency_key => 'order-4')")


def next_release(release: Release) -> Release:
    """With another table and another column."""
    release.write(
        f"migrations/{SCHEMA_VERSION + 1:04}_next.sql",
        "create table queues.extra (); alter table queues.task add column note text;",
    )
    return release


@pytest.mark.parametrize("action", ["nothing", "replay", "upgrade"])
def test_a_migration_keeps_all_rows(blank: Database, release: Release, action: str) -> None:
    migrate(blank.dsn)
    fill(blank)
    before = contents(blank)
    filled = {"task", "ready", "lease", "outcome", "step", "wait", "schedule", "outbox_event"}
    assert filled <= {name.removeprefix("queues.") for name in before}

    sources = next_release(release).sources if action == "upgrade" else None
    assert migrate(blank.dsn, sources=sources, force=action == "replay").action == action

    after = contents(blank)
    for (row,) in after["queues.task"]:
        row.pop("note", None)
    assert after == before


def test_a_run_goes_on_beside_a_migration_and_repeats_no_step(blank: Database, release: Release) -> None:
    migrate(blank.dsn)
    app = App(blank.dsn)
    charged: list[int] = []
    begun = Event()

    def charge(order: int) -> int:
        charged.append(order)
        begun.set()
        return order

    @app.task("shop.fulfil")
    async def fulfil(ctx: Context, order: int) -> str:
        paid = await ctx.step(charge, order)
        return f"{paid} {await ctx.wait('approval', str)}"

    with working(app, blank.dsn):
        handle = fulfil.enqueue(order=7)
        assert begun.wait(60)
        for sources, force in ((None, False), (None, True), (next_release(release).sources, False)):
            migrate(blank.dsn, sources=sources, force=force)
            fulfil.enqueue(order=8)
        handle.signal("approval", "yes")
        assert (handle.result(timeout=60), charged.count(7)) == ("7 yes", 1)
    app.close()
