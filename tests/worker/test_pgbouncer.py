"""Behind PgBouncer in transaction mode everything works; only wake-ups are done without."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from holdfast import Context
from support.database import Database
from support.pgbouncer import pgbouncer
from support.workshop import Workshop


@pytest.fixture
def pooled(db: Database) -> Iterator[str]:
    with pgbouncer(db) as url:
        yield url


async def test_tasks_run_and_are_found_by_polling_with_one_warning(shop: Workshop, pooled: str) -> None:
    @shop.task("work.echo")
    async def echo(number: int) -> int:
        return number

    async with shop.working(pooled, poll_interval="50ms", heartbeat="100ms"):
        for _ in range(10):  # more than it takes a driver to prepare a statement
            await shop.ended(*await echo.aenqueue_many([{"number": n} for n in range(5)]))
    assert len(shop.lines("no_wake_ups")) == 1
    assert not shop.lines("database_unavailable")
    assert not shop.lines("heartbeat_failed")


async def test_leases_are_kept_and_cancellations_are_heard(shop: Workshop, pooled: str) -> None:
    @shop.task("work.long")
    async def long(ctx: Context) -> None:
        ctx.progress(1, 2)
        await asyncio.Event().wait()

    async with shop.working(pooled, poll_interval="50ms", lease="2s", heartbeat="300ms") as worker:
        handle = await long.aenqueue()
        await shop.until("select from queues.lease where lease_until > claimed_at + interval '3 seconds'")
        await handle.acancel()
        await shop.sees(lambda: not worker._parts.jobs.slots.running)
    assert (await shop.ended(handle))["attempt"] == 1


async def test_a_handlers_transaction_leaves_nothing_behind_on_the_poolers_connection(
    shop: Workshop, pooled: str
) -> None:
    shop.conn.execute("create table ledger (entry integer)")

    @shop.task("work.write")
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            for entry in range(10):
                await connection.execute("insert into ledger values (%s)", [entry])

    async with shop.working(pooled, poll_interval="50ms", worker_concurrency=4):
        await shop.ended(*await write.aenqueue_many([{}] * 8))
    assert shop.conn.execute("select count(*) from ledger").fetchone() == (80,)
    assert not shop.lines("attempt_failed")


async def test_connections_that_the_pooler_lost_are_made_again(shop: Workshop, pooled: str) -> None:
    @shop.task("work.echo")
    async def echo() -> None:
        pass

    async with shop.working(pooled, poll_interval="50ms"):
        await shop.ended(await echo.aenqueue())
        await shop.terminate()
        assert (await shop.ended(await echo.aenqueue()))["status"] == "succeeded"


@pytest.mark.parametrize("way", ["direct", "pooled"])
async def test_a_client_that_cancels_its_tasks_and_does_not_commit_harms_no_task_of_another_login(
    shop: Workshop, pooled: str, way: str
) -> None:
    """Their leases are renewed and their results recorded for as long as it stays in its transaction."""
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    client = shop.db.connect("holdfast_client", autocommit=False)
    many = "select e.task_id from queues.enqueue_many(%s::jsonb) e"
    asked = [json.dumps([{"type": "work.long", "queue": "work"}] * 50)]
    cancelled = [row[0] for row in client.execute(many, asked).fetchall()]
    client.commit()
    others = [row[0] for row in shop.conn.execute(many, asked).fetchall()]
    url = pooled if way == "pooled" else None
    brief = {"lease": "3s", "heartbeat": "500ms", "poll_interval": "50ms", "worker_concurrency": 100}
    async with shop.working(url, **brief) as worker:
        await shop.until("select from queues.lease having count(*) = 100")
        client.execute("select queues.cancel(task_id) from unnest(%s) task_id", [cancelled])
        await shop.until(
            "select from queues.lease where lease_until > claimed_at + interval '12 seconds'"
            " and task_id = any (%s) having count(*) = 50",
            others,
        )
        gate.set()
        await shop.ended(*others)
        client.commit()
        await shop.ended(*cancelled)
        await shop.sees(lambda: worker._parts.settler.unsettled == 0)
    ended = "select distinct status, attempt from queues.outcome where task_id = any (%s)"
    assert shop.conn.execute(ended, [others]).fetchall() == [("succeeded", 1)]
    assert shop.conn.execute(ended, [cancelled]).fetchall() == [("cancelled", 1)]
    assert not shop.lines("heartbeat_failed")
    assert not shop.lines("leases_recovered")


async def test_a_handlers_transaction_waits_for_a_client_that_is_cancelling_its_task(
    shop: Workshop, pooled: str
) -> None:
    """Neither does it fail at once, nor are its leases forgotten: whether it counts, the client decides."""
    shop.conn.execute("create table ledger (entry integer)")
    gate = asyncio.Event()

    @shop.task("work.write")
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into ledger values (1)")
        await gate.wait()

    other = shop.db.connect(autocommit=False)
    async with shop.working(pooled, poll_interval="50ms", heartbeat="200ms"):
        handle = await write.aenqueue()
        await shop.until("select from queues.lease where started_at is not null")
        other.execute("select queues.cancel(%s)", [handle.task_id])
        gate.set()
        finishing = "pg_stat_activity where query like '%queues.finish%' and pid <> pg_backend_pid()"
        await shop.until(f"select from {finishing} and state = 'idle in transaction'".replace("%", "%%"))
        other.rollback()
        row = await shop.ended(handle)
    assert (row["status"], row["attempt"]) == ("succeeded", 1)
    assert shop.conn.execute("select count(*) from ledger").fetchone() == (1,)
