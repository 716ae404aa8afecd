"""The same inside a running event loop."""

import asyncio
import threading
from datetime import timedelta

import pytest

from holdfast import App, Context, NoRetry, Snooze
from holdfast.testing import Sandbox


async def test_adrain_runs_coroutines_in_the_loop_of_the_test(holdfast: Sandbox, app: App) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @app.task("any.where")
    async def where() -> None:
        loops.append(asyncio.get_running_loop())

    await where.aenqueue()
    [ran] = await holdfast.adrain()
    assert ran.status == "succeeded"
    assert loops == [asyncio.get_running_loop()]


async def test_adrain_runs_plain_functions_in_a_thread_as_a_worker_does(holdfast: Sandbox, app: App) -> None:
    @app.task("any.where")
    def where() -> int:
        asyncio.run(asyncio.sleep(0))  # which is refused in the thread of a running loop
        return threading.get_ident()

    await where.aenqueue()
    [ran] = await holdfast.adrain()
    assert ran.status == "succeeded"
    assert ran.result != threading.get_ident()


async def test_what_else_runs_in_the_loop_goes_on(holdfast: Sandbox, app: App) -> None:
    ring = asyncio.Event()

    @app.task("any.wait")
    async def wait() -> str:
        asyncio.get_running_loop().call_soon(ring.set)
        await ring.wait()
        return "rung"

    await wait.aenqueue()
    assert [ran.result for ran in await holdfast.adrain()] == ["rung"]


async def test_adrain_moves_the_clock_until_then(holdfast: Sandbox, app: App) -> None:
    @app.task("any.poll")
    async def poll() -> Snooze:
        return Snooze(60)

    await poll.aenqueue()
    assert len(await holdfast.adrain(until=timedelta(minutes=3))) == 4


async def test_adrain_can_be_cancelled(holdfast: Sandbox, app: App) -> None:
    started = asyncio.Event()

    @app.task("any.hang")
    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    await hang.aenqueue()
    draining = asyncio.create_task(holdfast.adrain())
    await started.wait()
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining


async def test_a_handler_that_is_cancelled_from_within_is_an_attempt_that_went_wrong(
    holdfast: Sandbox, app: App
) -> None:
    @app.task("any.cancelled", retry=NoRetry())
    async def cancelled() -> None:
        raise asyncio.CancelledError

    await cancelled.aenqueue()
    assert [ran.status for ran in await holdfast.adrain()] == ["failed"]


async def test_drain_refuses_a_running_loop_and_says_what_to_await(holdfast: Sandbox, app: App) -> None:
    with pytest.raises(RuntimeError, match="await adrain there"):
        holdfast.drain()


async def test_arun_task_runs_a_handler_alone(holdfast: Sandbox, app: App) -> None:
    @app.task("any.double")
    async def double(ctx: Context, n: int) -> int:
        return 2 * n

    @app.task("any.triple")
    def triple(n: int) -> int:
        return 3 * n

    assert await holdfast.arun_task(double, n=2) == 4
    assert await holdfast.arun_task(triple, n=2) == 6
    with pytest.raises(RuntimeError, match="await arun_task there"):
        holdfast.run_task(double, n=2)
