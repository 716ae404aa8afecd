"""Deadlines: a task ends by then, whatever it does and whichever way it is run."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Context, Linear, SyncContext
from support.workshop import Workshop

SOON = timedelta(seconds=0.5)


def _end(row: dict[str, Any]) -> tuple[str, str]:
    return row["status"], row["error"]["kind"]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_deadline_counts_waiting_too(shop: Workshop, kind: str) -> None:
    @shop.task("work.late", deadline=SOON)
    async def late(ctx: Context) -> None:
        await ctx.sleep(3600)

    @shop.task("work.late_sync", deadline=0.5)
    def late_sync(ctx: SyncContext) -> None:
        ctx.sleep(3600)

    async with shop.working():
        row = await shop.ended(await (late if kind == "async" else late_sync).aenqueue())
    assert _end(row) == ("failed", "deadline_passed")


async def test_a_call_has_its_own_deadline(shop: Workshop) -> None:
    @shop.task("work.late", deadline=timedelta(days=1))
    async def late(ctx: Context) -> None:
        await ctx.wait("never")

    async with shop.working():
        handle = await late.using(deadline=0.5).aenqueue()
        assert _end(await shop.ended(handle)) == ("failed", "deadline_passed")


async def test_a_deadline_ends_the_delays_between_attempts(shop: Workshop) -> None:
    @shop.task("work.broken", retry=Linear(step=3600))
    async def broken() -> None:
        raise ValueError("no")

    async with shop.working():
        handle = await broken.using(deadline=SOON).aenqueue()
        assert _end(await shop.ended(handle)) == ("failed", "deadline_passed")
    assert [error["kind"] for error in await shop.errors(handle)] == ["handler_error", "deadline_passed"]


async def test_a_task_that_is_found_too_late_is_not_run(shop: Workshop) -> None:
    ran = []

    @shop.task("work.once")
    def once() -> None:
        ran.append("once")

    @shop.task("work.together", batch=2)
    def together(items: list[int]) -> None:
        ran.append("together")

    handles = [
        await once.using(deadline=0.001).aenqueue(),
        await together.using(deadline=0.001).aenqueue(1),
    ]
    shop.conn.execute("select pg_sleep(0.01)")
    async with shop.working():
        for handle in handles:
            assert _end(await shop.ended(handle)) == ("failed", "deadline_passed")
    assert ran == []


async def test_a_plain_function_behind_middleware_ends_by_its_deadline(shop: Workshop) -> None:
    ended = threading.Event()

    @shop.app.middleware
    async def through(call: Any, proceed: Any) -> Any:
        del call
        return await proceed()

    @shop.task("work.endless")
    def endless() -> None:
        try:
            while True:
                ended.wait(0.01)
        finally:
            ended.set()

    async with shop.working():
        handle = await endless.using(deadline=SOON).aenqueue()
        assert _end(await shop.ended(handle)) == ("failed", "deadline_passed")
    assert ended.is_set()


@pytest.mark.parametrize("kind", ["declared", "given"])
async def test_all_generations_have_one_deadline(shop: Workshop, kind: str) -> None:
    @shop.task("work.loop", deadline=SOON if kind == "declared" else None)
    async def loop(ctx: Context, n: int) -> None:
        await ctx.sleep(0.01)
        ctx.continue_as(n=n + 1)

    async with shop.working():
        task = loop.using(deadline=SOON) if kind == "given" else loop
        handle = await task.aenqueue(n=1)
        row = await shop.until("select * from queues.task_status where status = 'failed'")
    assert _end(row) == ("failed", "deadline_passed")
    assert (row["task_id"], row["generation"] > 1) == (handle.task_id, True)
