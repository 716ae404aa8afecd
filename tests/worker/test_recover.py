"""The leader removes workers that have fallen silent, and those that have not enter themselves again."""

import asyncio
import os
import socket
from datetime import timedelta
from importlib.metadata import version

from support.workshop import Workshop


async def test_what_a_silent_worker_held_runs_elsewhere_long_before_its_lease_ends(shop: Workshop) -> None:
    @shop.task("work.echo")
    async def echo() -> None:
        pass

    handle = await echo.aenqueue()
    shop.conn.execute(
        "select queues.register_worker('gone', timeout => '5 seconds', queues => array['work'])"
    )
    shop.conn.execute("select from queues.claim('gone', 1, array['work'], lease => '1 hour')")
    shop.conn.execute("update queues.worker set last_heartbeat = last_heartbeat - interval '1 minute'")
    async with shop.working():
        row = await shop.ended(handle)
        await shop.logged("worker_lost", lost="gone", back_to_ready=1, dead_letter=0)
    assert (row["status"], row["attempt"]) == ("succeeded", 2)
    assert [error["kind"] for error in await shop.errors(handle)] == ["worker_lost"]


async def test_a_busy_worker_that_was_taken_for_dead_registers_again(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    async with shop.working(heartbeat="100ms", worker_concurrency=1) as worker:
        await shop.becomes(await long.aenqueue(), "running")
        shop.conn.execute("delete from queues.worker")
        await shop.logged("registered_again")
        await shop.until("select from queues.worker where worker_id = %s and in_flight = 1", worker.worker_id)
        gate.set()


async def test_a_worker_registers_with_what_it_is_and_under_a_new_name_at_every_start(shop: Workshop) -> None:
    names = set()
    for _ in range(2):
        async with shop.working(worker_id="node", worker_timeout="42s", worker_concurrency=7):
            row = await shop.until("select * from queues.worker_status")
        names.add(row["worker_id"])
        assert row["worker_id"].startswith("node")
        assert (row["hostname"], row["pid"]) == (socket.gethostname(), os.getpid())
        assert (row["version"], row["concurrency"]) == (version("holdfast"), 7)
        assert (row["queues"], row["timeout"]) == (["work"], timedelta(seconds=42))
        assert row["last_heartbeat"] >= row["started_at"]
    assert len(names) == 2
