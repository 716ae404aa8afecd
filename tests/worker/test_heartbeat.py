"""Leases are kept while handlers run, given up before they end, recovered when others leave them behind."""

import asyncio
import threading
import time
from typing import Any

import pytest

from holdfast._workflows.ends import Stopped
from support.proxy import Proxy
from support.workshop import Row, Workshop

SHORT = {"lease": "2s", "heartbeat": "400ms"}


async def renewed_past(shop: Workshop, seconds: float) -> Row:
    """The lease of the only task, once it has been prolonged to so long after its claim."""
    return await shop.until(
        "select * from queues.lease where lease_until > claimed_at + %s * interval '1 second'", seconds
    )


async def test_a_lease_is_prolonged_while_the_handler_runs(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    async with shop.working(**SHORT):
        handle = await long.aenqueue()
        await renewed_past(shop, 3.5)
        gate.set()
        assert (await shop.ended(handle))["attempt"] == 1


async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(shop: Workshop) -> None:
    @shop.task("work.block")
    async def block() -> None:
        time.sleep(3.5)  # noqa: ASYNC251 - what is tested

    async with shop.working(**SHORT):
        row = await shop.ended(await block.aenqueue())
    assert (row["status"], row["attempt"]) == ("succeeded", 1)


async def test_a_tasks_own_shorter_lease_is_prolonged_in_time(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.short", lease=2)
    async def short() -> None:
        await gate.wait()

    async with shop.working(lease="1h", heartbeat="10m", worker_timeout="1h"):
        handle = await short.aenqueue()
        await renewed_past(shop, 3.5)
        gate.set()
        assert (await shop.ended(handle))["attempt"] == 1


async def test_a_beat_tells_when_the_handler_started(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    async with shop.working(**SHORT):
        row = await shop.becomes(await long.aenqueue(), "running")
        gate.set()
    assert row["claimed_at"] <= row["started_at"]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_handler_whose_lease_was_lost_is_ended_and_its_task_runs_again(
    shop: Workshop, kind: str
) -> None:
    first = threading.Event()
    ended: list[str] = []

    async def long() -> str:
        if first.is_set():
            return "second"
        first.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            ended.append(type(error).__name__)
            raise
        return "first"

    def long_in_thread() -> str:
        if first.is_set():
            return "second"
        first.set()
        try:
            while True:
                pass
        except Stopped as error:
            ended.append(type(error).__name__)
            raise

    task: Any = shop.task("work.long")(long if kind == "async" else long_in_thread)
    async with shop.working(**SHORT) as worker:
        handle = await task.aenqueue()
        await shop.sees(first.is_set)
        await shop.becomes(handle, "running")
        shop.conn.execute("update queues.lease set lease_until = lease_until - interval '1 hour'")
        shop.conn.execute("select queues.sweep()")
        row = await shop.ended(handle)
        await shop.sees(lambda: ended)
        assert worker.metrics.lost_leases == 1
    assert (row["result"], row["attempt"]) == ("second", 2)


async def test_handlers_are_ended_before_their_leases_when_the_database_is_silent(
    shop: Workshop, proxy: Proxy
) -> None:
    seen: list[float] = []

    @shop.task("work.long")
    async def long() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(time.monotonic())
            raise

    async with shop.working(proxy.dsn, lease="2s", heartbeat="400ms"):
        handle = await long.aenqueue()
        await shop.becomes(handle, "running")
        proxy.freeze()
        frozen = time.monotonic()
        await shop.sees(lambda: seen)
        lease = shop.conn.execute("select lease_until > queues.clock() from queues.lease").fetchone()
        proxy.thaw()
        proxy.cut()
    assert seen[0] - frozen > 0.5
    assert lease == (True,)


async def test_what_was_given_up_after_it_had_begun_has_used_its_attempt_and_runs_again_after_its_lease(
    shop: Workshop, proxy: Proxy
) -> None:
    attempts: list[int] = []

    @shop.task("work.long")
    async def long() -> None:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            await asyncio.Event().wait()

    async with shop.working(proxy.dsn, lease="6s", heartbeat="500ms"):
        handle = await long.aenqueue()
        await shop.becomes(handle, "running")
        proxy.close()
        await shop.logged("task_stopped", why="lost")
        proxy.open()
        row = await shop.ended(handle)
    assert (row["status"], row["attempt"], len(attempts)) == ("succeeded", 2, 2)


async def test_the_heartbeat_comes_back_after_its_connection_was_cut(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    async with shop.working(lease="4s", heartbeat="200ms"):
        handle = await long.aenqueue()
        await shop.becomes(handle, "running")
        await shop.terminate()
        await shop.logged("database_back", connection="heartbeat")
        await renewed_past(shop, 4.5)
        gate.set()
        assert (await shop.ended(handle))["attempt"] == 1


@pytest.mark.usefixtures("broken_logs")
async def test_leases_are_renewed_after_an_outage_although_the_logs_are_broken(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    async with shop.working(lease="4s", heartbeat="200ms") as worker:
        handle = await long.aenqueue()
        await shop.becomes(handle, "running")
        await shop.terminate()
        await renewed_past(shop, 4.5)
        gate.set()
        assert (await shop.ended(handle))["attempt"] == 1
        assert worker._parts.heartbeat.is_alive()


@pytest.mark.parametrize("part", ["heartbeat", "leader"])
async def test_a_worker_without_one_of_its_threads_ends_and_says_so(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    @shop.task("work.long")
    async def long() -> None:
        await asyncio.Event().wait()

    worker = shop.worker(grace="1h")
    thread = getattr(worker._parts, part)
    running = asyncio.create_task(worker.run())
    handle = await long.aenqueue()
    await shop.becomes(handle, "running")
    monkeypatch.setattr(thread, "_seconds_until_next", _out_of_memory)
    thread._wake.set()
    with pytest.raises(RuntimeError, match="a thread of this worker has ended"):
        await running
    assert shop.lines("thread_failed", thread=part, level="critical")
    row = await shop.becomes(handle, "pending")
    assert row["attempt"] == 0


def _out_of_memory() -> float:
    raise MemoryError


async def test_a_worker_recovers_what_another_has_left_behind(shop: Workshop) -> None:
    @shop.task("work.echo")
    async def echo() -> str:
        return "done"

    handle = await echo.aenqueue()
    shop.conn.execute("select queues.claim('dead', 1, '{work}', null, '1 second')")
    async with shop.working(poll_interval="1h"):
        row = await shop.ended(handle)
    assert (row["status"], row["attempt"]) == ("succeeded", 2)
    assert shop.lines("leases_recovered")


async def test_a_worker_that_does_not_lead_sweeps_when_the_leader_is_late(shop: Workshop) -> None:
    @shop.task("work.echo")
    async def echo() -> str:
        return "done"

    handle = await echo.aenqueue()
    shop.conn.execute("select queues.claim('dead', 1, '{work}', null, '2 seconds')")
    shop.conn.execute("select queues.lead('stuck', '1 hour')")
    async with shop.working(poll_interval="1h", heartbeat="1h", lease="3h", worker_timeout="1d"):
        row = await shop.ended(handle)
    assert (row["status"], row["attempt"]) == ("succeeded", 2)
    assert not shop.lines("leading_started")


async def test_a_worker_without_tasks_sends_no_heartbeat_while_it_rests(shop: Workshop) -> None:
    async with shop.working(poll_interval="50ms", heartbeat="500ms", lease="3s") as worker:
        await shop.sees(lambda: worker._parts.heartbeat._rested_at > 0)
        beats = worker.metrics.batches["heartbeat"].count
        before = (await shop.until("select last_heartbeat from queues.worker"))["last_heartbeat"]
        await shop.until("select from queues.worker where last_heartbeat > %s + interval '2 s'", before)
        assert worker.metrics.batches["heartbeat"].count <= beats + 1


async def test_a_worker_whose_tasks_have_ended_says_that_it_holds_none(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    async with shop.working(poll_interval="50ms", heartbeat="100ms", lease="3s"):
        handle = await long.aenqueue()
        await shop.until("select from queues.worker where in_flight = 1")
        gate.set()
        await shop.ended(handle)
        await shop.until("select from queues.worker where in_flight = 0")


async def test_a_lease_that_another_session_has_locked_costs_the_others_nothing(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    other = shop.db.connect(autocommit=False)
    async with shop.working(lease="5s", heartbeat="500ms"):
        handles = await long.aenqueue_many([{}] * 7)
        await shop.until("select from queues.lease having count(*) = 7")
        other.execute("select from queues.lease where task_id = %s for update", [handles[3].task_id])
        renewed = "lease_until > claimed_at + interval '6 seconds'"
        await shop.until(f"select from queues.lease where {renewed} having count(*) = 6")
        other.rollback()
        gate.set()
        await shop.ended(*handles)
    assert shop.conn.execute("select distinct attempt from queues.outcome").fetchall() == [(1,)]
    assert not shop.lines("task_stopped")


async def test_a_task_that_ends_while_a_beat_is_under_way_is_not_taken_for_lost(shop: Workshop) -> None:
    @shop.task("work.echo")
    async def echo() -> None:
        pass

    async with shop.working(heartbeat="100ms") as worker:
        await shop.ended(*await echo.aenqueue_many([{}] * 1000))
        await shop.sees(lambda: worker.metrics.finished["succeeded"] == 1000)
        assert worker.metrics.lost_leases == 0
    assert not shop.lines("task_stopped")


async def test_a_task_that_is_claimed_again_here_is_not_dropped_with_its_first_attempt(
    shop: Workshop,
) -> None:
    gate = asyncio.Event()
    seen: list[int] = []

    @shop.task("work.stubborn")
    async def stubborn() -> int:
        number = len(seen)
        seen.append(number)
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return number

    async with shop.working(**SHORT) as worker:
        handle = await stubborn.aenqueue()
        await shop.becomes(handle, "running")
        shop.conn.execute("update queues.lease set lease_until = lease_until - interval '1 hour'")
        shop.conn.execute("select queues.sweep()")
        await shop.sees(lambda: len(seen) == 2)
        gate.set()
        row = await shop.ended(handle)
        await shop.logged("result_refused", verdict="lost")
        await shop.sees(lambda: not worker._parts.jobs.held)
    assert (row["result"], row["attempt"]) == (1, 2)
