"""What steps were called with is stored beside what they returned or raised, wherever they run."""

import asyncio
from typing import Any

from holdfast import Context, Exponential, NoRetry, SyncContext
from holdfast.errors import StepFailed
from holdfast.handle import Handle
from support import hostile
from support.workshop import Workshop


async def _arguments(handle: Handle[Any]) -> list[Any]:
    return [(step.name, step.arguments) for step in await handle.asteps()]


async def test_steps_of_every_kind_store_what_they_were_called_with(shop: Workshop) -> None:
    async def charge(order_id: int) -> int:
        return order_id

    def pack(order_id: int, item: str) -> str:
        return item

    def begin() -> None: ...

    async def reserve(db: Any, seat: int) -> int:
        await db.execute("select 1")
        return seat

    @shop.task("work.order")
    async def order(ctx: Context) -> None:
        await ctx.step(begin)
        await ctx.step(charge, 42)
        await asyncio.gather(*(ctx.step(pack, 42, item, key=item) for item in "ab"))
        await ctx.step_in_transaction(reserve, 5)

    @shop.task("work.blocking")
    def blocking(ctx: SyncContext) -> None:
        ctx.step(pack, 42, "x" * 5000)

    async with shop.working():
        first, second = await order.aenqueue(), await blocking.aenqueue()
        assert {(await shop.ended(one))["status"] for one in (first, second)} == {"succeeded"}

    assert await _arguments(first) == [
        ("begin", None),
        ("charge", {"order_id": 42}),
        ("pack[a]", {"order_id": 42, "item": "a"}),
        ("pack[b]", {"order_id": 42, "item": "b"}),
        ("reserve", {"seat": 5}),
    ]
    [(_, cut)] = await _arguments(second)
    assert (cut["holdfast"], cut["begins"][:30]) == ("cut", '{"order_id":42,"item":"xxxxxxx')


async def test_a_step_that_ends_its_attempt_stores_its_arguments_with_the_error(shop: Workshop) -> None:
    async def charge(order_id: int) -> None:
        raise ConnectionError

    @shop.task("work.order", retry=Exponential(base=3600), max_attempts=2)
    async def order(ctx: Context) -> None:
        await ctx.step(charge, 42)

    @shop.task("work.goes_on", retry=NoRetry())
    async def goes_on(ctx: Context) -> None:
        try:
            await ctx.step(charge, 43)
        except StepFailed as failed:
            assert failed.arguments == {"order_id": 43}  # noqa: PT017 - in a handler

    async with shop.working():
        first, second = await order.aenqueue(), await goes_on.aenqueue()
        await shop.becomes(first, "retrying")
        assert (await shop.ended(second))["status"] == "succeeded"

    [(detail,)] = shop.conn.execute(
        "select detail from queues.task_error where task_id = %s", [first.task_id]
    ).fetchall()
    assert detail["arguments"] == {"order_id": 42}
    assert await _arguments(second) == [("charge", {"order_id": 43})]


async def test_steps_in_child_processes_store_them_too(works: Workshop) -> None:
    async with works.working(process_pool=1):
        handle = await hostile.large_steps.aenqueue(2, 3)
        await works.ended(handle)
    assert sorted(await _arguments(handle)) == [
        ("_repeat[0]", {"size": 3}),
        ("_repeat[1]", {"size": 3}),
    ]


async def test_a_setting_switches_it_off(shop: Workshop) -> None:
    async def charge(order_id: int) -> int:
        return order_id

    @shop.task("work.order")
    async def order(ctx: Context) -> None:
        await ctx.step(charge, 42)

    async with shop.working(record_step_arguments=False):
        handle = await order.aenqueue()
        await shop.ended(handle)
    assert await _arguments(handle) == [("charge", None)]


async def test_a_setting_switches_it_off_in_child_processes(works: Workshop) -> None:
    async with works.working(process_pool=1, record_step_arguments=False):
        handle = await hostile.large_steps.aenqueue(1, 3)
        await works.ended(handle)
    assert await _arguments(handle) == [("_repeat[0]", None)]
