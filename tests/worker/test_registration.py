"""A worker registers under a new name at every start, and again if another one considered it dead."""

import asyncio
import os
import socket
from datetime import timedelta
from importlib.metadata import version

from support.workshop import Workshop


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


async def test_a_worker_registers_what_its_decorators_declare(shop: Workshop) -> None:
    @shop.task("work.pay", queue="work", priority=4, max_attempts=9, timeout=0.2, lease=90)
    async def pay(invoice_id: int) -> str:
        await asyncio.sleep(30)
        return ""

    async with shop.working():
        row = await shop.until("select * from queues.registered_type where type = 'work.pay'")
        shop.conn.execute("select queues.enqueue('work.pay', '{\"invoice_id\": 7}')")
        error = await shop.until(
            "select e.kind, t.max_attempts, t.priority from queues.task_error e "
            "join queues.task t using (task_id)"
        )
    assert (row["queue"], row["priority"], row["max_attempts"]) == ("work", 4, 9)
    assert (row["timeout"], row["lease"]) == (timedelta(milliseconds=200), timedelta(seconds=90))
    assert (row["executor"], row["schema"]["arguments"]["required"]) == ("python", ["invoice_id"])
    assert (error["kind"], error["max_attempts"], error["priority"]) == ("timeout", 9, 4)


async def test_a_worker_registers_with_what_it_is_and_under_a_new_name_at_every_start(shop: Workshop) -> None:
    names = set()
    for _ in range(2):
        async with shop.working(worker_id="node", worker_timeout="42s", worker_concurrency=7):
            row = await shop.until("select * from queues.worker_status")
        names.add(row["worker_id"])
        assert row["worker_id"].startswith("node")
        assert (row["hostname"], row["pid"]) == (socket.gethostname(), os.getpid())
        assert (row["version"], row["concurrency"]) == (version("holdfast-pg"), 7)
        assert (row["queues"], row["timeout"]) == (["work"], timedelta(seconds=42))
        assert row["last_heartbeat"] >= row["started_at"]
    assert len(names) == 2


async def test_a_worker_without_an_application_leaves_a_task_to_others(shop: Workshop) -> None:
    shop.conn.execute("select queues.enqueue('work.unknown', max_attempts => 1)")
    async with shop.working():
        row = await shop.until("select * from queues.task_status where status = 'scheduled'")
    assert (row["attempt"], row["error"]) == (0, None)
    assert timedelta(seconds=10) < row["run_at"] - row["created_at"] < timedelta(minutes=1)
    [(code, error)] = shop.conn.execute(
        "select code, error from queues.explain(%s)", [row["task_id"]]
    ).fetchall()
    assert code == "postponed"
    assert error.startswith("it was started without an application, and work.unknown needs a Python handler")
