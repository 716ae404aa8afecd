"""Asked to stop, a worker claims nothing more, lets handlers end, gives back the rest with its attempt."""

import asyncio
import threading
from random import Random
from typing import Any

import pytest

from holdfast import SyncContext
from holdfast._worker.jobs import Demand
from holdfast._worker.worker import Worker
from support.proxy import Proxy
from support.wire import Wire
from support.workshop import Workshop


async def started(shop: Workshop, **settings: Any) -> tuple[Worker, asyncio.Task[int]]:
    worker = shop.worker(**settings)
    running = asyncio.create_task(worker.run())
    await worker.ready.wait()
    return worker, running


async def test_running_handlers_may_end_within_the_grace_period(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> str:
        await gate.wait()
        return "in time"

    worker, running = await started(shop, grace="1m")
    handle = await long.aenqueue()
    await shop.until("select from queues.lease")
    worker.stop()
    await shop.logged("worker_stopping", running=1)
    gate.set()
    assert await running == 0
    assert (await shop.ended(handle))["result"] == "in time"


async def test_leases_are_prolonged_during_the_grace_period(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    worker, running = await started(shop, grace="1m", lease="2s", heartbeat="400ms")
    handle = await long.aenqueue()
    await shop.until("select from queues.lease")
    worker.stop()
    await shop.until("select from queues.lease where lease_until > claimed_at + interval '4 seconds'")
    gate.set()
    assert await running == 0
    assert (await shop.ended(handle))["attempt"] == 1


async def test_nothing_is_claimed_after_the_request_to_stop(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    worker, running = await started(shop, grace="1m")
    await long.aenqueue()
    await shop.until("select from queues.lease")
    worker.stop()
    await shop.logged("worker_stopping")
    later = await long.aenqueue()
    gate.set()
    assert await running == 0
    assert await later.astatus() == "pending"


@pytest.mark.parametrize("kind", ["async", "sync", "deaf"])
async def test_what_still_runs_after_the_grace_period_is_given_back_with_its_attempt(
    shop: Workshop, kind: str
) -> None:
    gate = threading.Event()

    async def long() -> None:
        await asyncio.Event().wait()

    def long_in_thread(ctx: SyncContext) -> None:
        while True:
            ctx.raise_if_stopped()

    def deaf() -> None:
        gate.wait()

    handlers: dict[str, Any] = {"async": long, "sync": long_in_thread, "deaf": deaf}
    task = shop.task("work.long")(handlers[kind])
    worker, running = await started(shop, grace="100ms")
    handle = await task.aenqueue()
    await shop.until("select from queues.lease")
    worker.stop()
    assert await running == 0
    gate.set()
    row = await shop.becomes(handle, "pending")
    assert row["attempt"] == 0


@pytest.mark.parametrize("kind", ["async", "deaf"])
async def test_what_may_run_once_and_had_begun_does_not_run_again_after_a_stop(
    shop: Workshop, kind: str
) -> None:
    gate, begun = threading.Event(), []

    async def long() -> None:
        begun.append(1)
        await asyncio.Event().wait()

    def deaf() -> None:
        begun.append(1)
        gate.wait()

    handlers: dict[str, Any] = {"async": long, "deaf": deaf}
    task = shop.task("work.long", max_attempts=1)(handlers[kind])
    worker, running = await started(shop, grace="0s", lease="2s", heartbeat="500ms")
    handle = await task.aenqueue()
    await shop.sees(lambda: begun)
    worker.stop()
    assert await running == 0
    async with shop.working(lease="2s", heartbeat="500ms"):
        row = await shop.ended(handle)
    gate.set()
    assert (row["status"], row["attempt"], len(begun)) == ("dead_letter", 1, 1)


async def test_what_waits_for_room_is_given_back_before_the_others_end(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    asked = iter([3])
    monkeypatch.setattr(Demand, "wanted", lambda *_: next(asked, 0))
    handles = await long.aenqueue_many([{}] * 3)
    worker, running = await started(shop, worker_concurrency=1, grace="1m")
    await shop.until("select from queues.lease having count(*) = 3")
    worker.stop()
    await shop.until("select from queues.lease having count(*) = 1")
    gate.set()
    assert await running == 0
    assert sorted([await handle.astatus() for handle in handles]) == ["pending", "pending", "succeeded"]


@pytest.mark.full
async def test_a_task_that_another_session_has_locked_does_not_keep_the_others_from_going_back(
    shop: Workshop,
) -> None:
    @shop.task("work.long")
    async def long() -> None:
        await asyncio.Event().wait()

    other = shop.db.connect(autocommit=False)
    worker, running = await started(shop, grace="0s")
    handles = await long.aenqueue_many([{}] * 4)
    await shop.until("select from queues.lease having count(*) = 4")
    other.execute("select from queues.lease where task_id = %s for update", [handles[2].task_id])
    worker.stop()
    assert await running == 0
    other.rollback()
    statuses = [await handle.astatus() for handle in handles]
    assert statuses[:2] + statuses[3:] == ["pending"] * 3


async def test_the_second_request_ends_the_grace_period(shop: Workshop) -> None:
    @shop.task("work.long")
    async def long() -> None:
        await asyncio.Event().wait()

    worker, running = await started(shop, grace="1h")
    handle = await long.aenqueue()
    await shop.until("select from queues.lease")
    worker.stop(15)
    await shop.logged("worker_stopping")
    worker.stop(2)
    assert await running == 128 + 2
    assert (await shop.becomes(handle, "pending"))["attempt"] == 0


async def test_a_worker_leaves_the_registry(shop: Workshop) -> None:
    worker, running = await started(shop)
    assert shop.conn.execute("select worker_id from queues.worker").fetchall() == [(worker.worker_id,)]
    worker.stop()
    await running
    assert shop.conn.execute("select worker_id from queues.worker").fetchall() == []


@pytest.mark.full
async def test_a_worker_without_its_database_ends_all_the_same(shop: Workshop, proxy: Proxy) -> None:
    @shop.task("work.long")
    async def long() -> None:
        await asyncio.Event().wait()

    worker = shop.worker(proxy.dsn, grace="0s")
    running = asyncio.create_task(worker.run())
    await worker.ready.wait()
    await long.aenqueue()
    await shop.until("select from queues.lease")
    proxy.freeze()
    worker.stop()
    worker.stop()
    async with asyncio.timeout(15):
        assert await running == 128 + 15


async def test_results_are_told_before_the_end(shop: Workshop, proxy: Proxy) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    @shop.task("work.long")
    async def long() -> str:
        begun.set()
        await gate.wait()
        return "told"

    worker = shop.worker(proxy.dsn)
    running = asyncio.create_task(worker.run())
    await worker.ready.wait()
    handle = await long.aenqueue()
    await begun.wait()
    proxy.close()
    gate.set()
    await shop.logged("database_unavailable", connection="settle")
    worker.stop()
    proxy.open()
    assert await running == 0
    assert (await shop.ended(handle))["result"] == "told"


async def test_a_worker_whose_loop_fails_gives_back_what_it_holds(shop: Workshop) -> None:
    @shop.task("work.long")
    async def long() -> None:
        await asyncio.Event().wait()

    worker, running = await started(shop)
    handle = await long.aenqueue()
    await shop.until("select from queues.lease")

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    worker._parts.claim_loop._claim = fail  # type: ignore[assignment,method-assign]
    worker._parts.jobs.stop_waiting()
    shop.conn.execute("select pg_notify('holdfast', 'work')")
    with pytest.raises(ZeroDivisionError):
        await running
    assert (await shop.becomes(handle, "pending"))["attempt"] == 0
    assert shop.lines("worker_failed")


async def test_what_the_server_fails_to_give_back_once_uses_up_no_attempt(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    @shop.task("work.wait", max_attempts=1)
    async def wait() -> None:
        await gate.wait()

    asked = iter([4])
    monkeypatch.setattr(Demand, "wanted", lambda *_: next(asked, 0))
    monkeypatch.setattr("holdfast._worker.jobs.SHARE_OF_LEASE", 0.9)  # only the stop gives them back
    shop.conn.execute("create sequence public.released; grant all on sequence public.released to public")
    shop.conn.execute(
        "create function public.fail_once() returns trigger language plpgsql as $$ begin"
        " if nextval('public.released') = 1 then raise exception 'planted' using errcode = 'XX000'; end if;"
        " return new; end $$"
    )
    shop.conn.execute(
        "create trigger fail_once before insert on queues.act for each row"
        " execute function public.fail_once()"
    )
    handles = await wait.aenqueue_many([{}] * 4)
    worker, running = await started(shop, worker_concurrency=1, lease="1m", heartbeat="20s", grace="1m")
    await shop.until("select from queues.lease having count(*) = 4")
    worker.stop()
    await shop.until("select from queues.ready having count(*) = 3")
    gate.set()
    assert await running == 0
    assert sorted([await handle.astatus() for handle in handles]) == ["pending"] * 3 + ["succeeded"]
    assert shop.conn.execute("select distinct attempt from queues.ready").fetchall() == [(0,)]


async def test_what_a_worker_that_stops_was_given_without_knowing_it_keeps_its_attempt(
    shop: Workshop,
) -> None:
    @shop.task("work.once", max_attempts=1)
    async def once() -> None:
        pass

    wire = Wire(shop.db.dsn, Random(1))  # noqa: S311 - a test's own order
    wire.disturb(b"queues.claim(", lost=1.0)
    handles = await once.aenqueue_many([{}] * 5)
    with wire.running():
        async with shop.working(wire.dsn, lease="1m", heartbeat="20s"):
            await shop.until("select from queues.lease having count(*) = 5")
    assert [await handle.astatus() for handle in handles] == ["pending"] * 5
    assert shop.conn.execute("select distinct attempt from queues.ready").fetchall() == [(0,)]
