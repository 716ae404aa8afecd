"""Behind PgBouncer in transaction mode everything works; only wake-ups are done without."""

import asyncio
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
        await shop.sees(lambda: not worker._parts.runner.running)
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
