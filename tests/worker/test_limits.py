"""The time limit of an attempt holds, also for what asyncio cannot stop."""

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

from holdfast import NoRetry
from holdfast._worker import watchdog
from holdfast._worker.report import HandlerTimeout
from holdfast._worker.watchdog import WatchedHandler
from holdfast._workflows.ends import Stopped
from support.workshop import Workshop


async def test_an_async_handler_is_cancelled_at_its_limit(shop: Workshop) -> None:
    @shop.task("work.slow", timeout=0.1, retry=NoRetry())
    async def slow() -> None:
        await asyncio.Event().wait()

    async with shop.working():
        row = await shop.ended(await slow.aenqueue())
    assert (row["status"], row["error"]["kind"]) == ("failed", "timeout")
    assert "longer than its limit of 0.1 s" in row["last_error"]


async def test_a_task_may_have_a_limit_of_its_own(shop: Workshop) -> None:
    @shop.task("work.slow", timeout=1000, retry=NoRetry())
    async def slow() -> None:
        await asyncio.Event().wait()

    async with shop.working():
        row = await shop.ended(await slow.using(timeout=0.1).aenqueue())
    assert row["error"]["kind"] == "timeout"


async def test_a_timeout_error_of_the_handlers_own_is_an_error_as_any_other(shop: Workshop) -> None:
    @shop.task("work.slow", timeout=100, retry=NoRetry())
    async def slow() -> None:
        raise TimeoutError("the bank does not answer")

    async with shop.working():
        row = await shop.ended(await slow.aenqueue())
    assert row["error"]["kind"] == "handler_error"


@pytest.mark.parametrize("middleware", [False, True])
async def test_a_handler_that_computes_in_a_thread_is_interrupted_at_its_limit(
    shop: Workshop, middleware: bool
) -> None:
    @shop.task("work.compute", timeout=0.2, retry=NoRetry())
    def compute() -> None:
        while True:
            pass

    async def pass_on(call: Any, proceed: Any) -> Any:
        return await proceed()

    if middleware:
        shop.app.middleware(pass_on)
    async with shop.working():
        row = await shop.ended(await compute.aenqueue())
    assert row["error"]["kind"] == "timeout"


async def test_a_handler_that_never_yields_is_interrupted_at_its_limit(shop: Workshop) -> None:
    @shop.task("work.compute", timeout=0.2, retry=NoRetry())
    async def compute() -> None:
        while True:
            pass

    @shop.task("work.other")
    async def other() -> None:
        pass

    async with shop.working():
        await shop.until("select from queues.worker where idle")
        handle, neighbour = await compute.aenqueue(), await other.aenqueue()
        row = await shop.ended(handle)
        await shop.ended(neighbour)
    assert row["error"]["kind"] == "timeout"


async def test_an_event_loop_that_is_blocked_is_told_with_the_task_that_blocks_it(shop: Workshop) -> None:
    @shop.task("work.block")
    async def block() -> None:
        time.sleep(2.5)  # noqa: ASYNC251 - what is tested

    async with shop.working():
        handle = await block.aenqueue()
        await shop.ended(handle)
    (line,) = shop.lines("event_loop_blocked")
    assert line["task_id"] == str(handle.task_id)


async def test_a_handler_that_catches_its_interruption_is_interrupted_again(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "STUCK_SECONDS", 2.0)
    caught = 0

    @shop.task("work.compute", timeout=0.1, retry=NoRetry())
    def compute() -> None:
        nonlocal caught
        while True:
            try:
                while True:
                    pass
            except HandlerTimeout:
                caught += 1
                if caught == 2:
                    raise

    async with shop.working():
        row = await shop.ended(await compute.aenqueue())
    assert row["error"]["kind"] == "timeout"


async def test_a_thread_that_blocks_for_ever_is_left_behind(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "STUCK_SECONDS", 0.3)
    gate = threading.Event()

    @shop.task("work.hang", timeout=0.1, retry=NoRetry())
    def hang() -> None:
        gate.wait()  # in C, where nothing reaches it

    @shop.task("work.other")
    def other() -> None:
        pass

    async with shop.working(worker_concurrency=1) as worker:
        row = await shop.ended(await hang.aenqueue())
        await shop.ended(await other.aenqueue())
        gate.set()
        assert not worker._parts.jobs.slots.running
    assert row["error"]["kind"] == "timeout"
    assert shop.lines("handler_stuck")


def test_nothing_reaches_a_handler_that_has_left() -> None:
    watched = WatchedHandler(None, 1.0, in_loop=False)  # type: ignore[arg-type]
    watched.run(lambda: None)
    assert not watched.interrupt(HandlerTimeout)


def test_an_interruption_on_its_way_is_taken_back_when_the_handler_leaves() -> None:
    """Thousands of ends at the very moment of the limit: it arrives inside, or nowhere."""
    for _ in range(300):
        watched = WatchedHandler(None, 1.0, in_loop=False)  # type: ignore[arg-type]
        entered = threading.Event()

        def interrupt(watched: WatchedHandler = watched, entered: threading.Event = entered) -> None:
            entered.wait()
            watched.interrupt(Stopped)

        other = threading.Thread(target=interrupt)
        other.start()
        with contextlib.suppress(Stopped):
            watched.run(entered.set)
        other.join()
        sum(range(100))  # would be hit here
