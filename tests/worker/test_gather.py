"""`asyncio.gather` of steps, sleeps and waits: a run is suspended only when all that is left is waiting."""

import asyncio
from collections import Counter

from holdfast import Context
from holdfast._workflows.drivers import LINGER_SECONDS
from support.workshop import Workshop

STEPS = 50


async def test_a_gather_of_steps_sleeps_and_a_wait_suspends_when_only_waiting_is_left_and_resumes_with_all(
    shop: Workshop,
) -> None:
    done: Counter[int] = Counter()
    done_at_start: list[int] = []

    async def pack(n: int) -> int:
        done[n] += 1
        if n == 0:
            await asyncio.sleep(4 * LINGER_SECONDS)  # a suspension meanwhile would cancel it, and repeat it
        return n

    @shop.task("work.gather")
    async def gather(ctx: Context) -> list[object]:
        done_at_start.append(sum(done.values()))
        return await asyncio.gather(
            *[ctx.step(pack, n, key=n) for n in range(STEPS)],
            ctx.sleep(0.3, "short"),
            ctx.sleep(0.6, "long"),
            ctx.wait("decision", str, timeout=3600),
        )

    async with shop.working():
        handle = await gather.aenqueue()
        await shop.until("select from queues.wait where signal = 'decision'")
        await handle.asignal("decision", "yes")
        row = await shop.ended(handle)
    assert row["result"] == [*range(STEPS), None, None, "yes"]
    assert done == Counter(range(STEPS))
    assert done_at_start[0] == 0
    assert set(done_at_start[1:]) == {STEPS}


async def test_a_run_is_not_suspended_while_the_block_of_a_transaction_runs(shop: Workshop) -> None:
    shop.conn.execute("create table reservation (n integer)")
    begun: list[int] = []

    @shop.task("work.reserve")
    async def reserve(ctx: Context) -> str:
        async def slowly() -> str:
            async with ctx.step_transaction("reserve") as db:
                await db.execute("insert into reservation values (1)")
                begun.append(1)
                await asyncio.sleep(4 * LINGER_SECONDS)  # a suspension meanwhile would roll it back
            return "reserved"

        return str((await asyncio.gather(slowly(), ctx.sleep(0.5)))[0])

    async with shop.working():
        row = await shop.ended(await reserve.aenqueue())
    assert row["result"] == "reserved"
    assert begun == [1]
    assert shop.conn.execute("select count(*) from reservation").fetchone() == (1,)
