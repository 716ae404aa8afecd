"""A run starts a business process in a transaction, and a supervisor wakes the run."""

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from holdfast import Context, Linear
from support.business import entries, make_application, make_function
from support.web import dsn_of
from support.workshop import Workshop

KICKOFF = """
  insert into app.ledger values ('kickoff');
  perform queues.enqueue('work.supervise', max_attempts => 5, payload => jsonb_build_object(
    'task_type', 'db_function', 'db_function', 'app.supervise', 'run_id', payload->'run_id'));
  return null;"""
SUPERVISE = """
  perform queues.signal((payload->>'run_id')::uuid, 'payment', '{"paid": true}', 'payment');
  insert into app.ledger values ('supervised');
  return '{"success": true}';"""


@pytest.fixture
def worker_url(shop: Workshop) -> str:
    """Of a login with the rights of a worker, whose handlers may also start the process, and no others."""
    make_application(shop.conn)
    make_function(shop.conn, "kickoff", KICKOFF, granted=False)
    make_function(shop.conn, "supervise", SUPERVISE)
    url = dsn_of(shop.db, "plain_worker", "holdfast_worker")
    shop.conn.execute("grant usage on schema app to plain_worker")
    shop.conn.execute("grant execute on function app.kickoff to plain_worker")
    # A handler enqueues in the namespace of its worker, and a supervisor wakes only runs of its own.
    shop.conn.execute("select queues.add_to_namespace('plain_worker', queues.namespace())")
    return url


async def test_a_run_starts_a_process_once_and_its_supervisor_wakes_it(
    shop: Workshop, worker_url: str
) -> None:
    attempts = 0

    @shop.task("work.fulfil", retry=Linear(step=0.01))
    async def fulfil(ctx: Context) -> bool:
        nonlocal attempts
        attempts += 1
        async with ctx.step_transaction("pay") as db:
            await db.execute("select app.kickoff(%s)", [Jsonb({"run_id": str(ctx.task_id)})])
        if attempts == 1:
            raise ConnectionError("after the process was started")
        payment: dict[str, Any] = await ctx.wait("payment", dict)
        return bool(payment["paid"])

    async with shop.working(worker_url):
        row = await shop.ended(await fulfil.aenqueue())
    assert (row["status"], row["result"]) == ("succeeded", True)
    assert entries(shop.conn) == ["kickoff", "supervised"]


async def test_a_supervisor_that_is_rolled_back_wakes_no_run(shop: Workshop, worker_url: str) -> None:
    make_function(shop.conn, "supervise", SUPERVISE.partition("insert")[0] + "raise 'the supervisor fails';")

    @shop.task("work.fulfil")
    async def fulfil(ctx: Context) -> bool:
        await ctx.wait("payment")
        return True

    async with shop.working(worker_url):
        handle = await fulfil.aenqueue()
        await shop.becomes(handle, "suspended")
        shop.conn.execute("select app.kickoff(%s)", [Jsonb({"run_id": str(handle.task_id)})])
        await shop.until("select from queues.task_error")
    sent = shop.conn.execute("select count(*) from queues.signal").fetchone()
    assert sent == (0,)
    assert (await shop.becomes(handle, "suspended"))["attempt"] <= 1
