"""`ctx.batch.add`: a task adds others to its batch, once, and what comes after waits for all of them."""

from typing import Any

import pytest

from holdfast import Context, Exponential, SyncContext
from holdfast.errors import InvalidStep
from support.workshop import Workshop


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_crawler_adds_the_pages_that_it_finds_and_the_index_gets_them_all(
    shop: Workshop, is_async: bool
) -> None:
    begun: list[int] = []

    if is_async:

        @shop.task("work.page", retry=Exponential(base=0))
        async def page(ctx: Context, number: int) -> int:
            begun.append(number)
            links = [n for n in (2 * number, 2 * number + 1) if n < 8]
            added = await ctx.batch.add(*[page.build(n) for n in links])
            again = await ctx.batch.add()
            assert (len(added), again) == (len(links), [])
            if begun.count(number) == 1:
                raise ValueError("the next attempt adds nothing")
            return number
    else:

        @shop.task("work.page", retry=Exponential(base=0))
        def page(ctx: SyncContext, number: int) -> int:
            begun.append(number)
            links = [n for n in (2 * number, 2 * number + 1) if n < 8]
            added = ctx.batch.add(*[page.build(n) for n in links])
            assert (len(added), ctx.batch.add()) == (len(links), [])
            if begun.count(number) == 1:
                raise ValueError("the next attempt adds nothing")
            return number

    @shop.task("work.index")
    async def index(ctx: Context) -> list[int]:
        pages: list[int] = await ctx.after(page)
        return pages

    batch = await shop.app.aenqueue_many([page.build(1)], then=index.build())
    async with shop.working():
        assert batch.then is not None
        row = await shop.ended(batch.then)
    assert (row["result"][0], sorted(row["result"])) == (1, [1, 2, 3, 4, 5, 6, 7])
    assert len(begun) == 14
    assert (await batch.acounts(), await batch.aprogress()) == ({"succeeded": 7}, (7, 7))


async def test_cancelling_a_batch_cancels_what_was_added(shop: Workshop) -> None:
    @shop.task("work.page")
    async def page(ctx: Context) -> None:
        await ctx.batch.add(other.using(delay=3600).build())

    @shop.task("work.other")
    async def other() -> None: ...

    batch = await shop.app.aenqueue_many([page.build()], then=other.build())
    async with shop.working():
        await shop.ended(batch[0])
    assert (await batch.acounts(), await batch.acancel("wrong site")) == ({"succeeded": 1, "scheduled": 1}, 2)


@pytest.mark.parametrize("given", [7, "page"])
async def test_only_built_tasks_can_be_added(shop: Workshop, given: Any) -> None:
    @shop.task("work.page")
    async def page(ctx: Context) -> str:
        try:
            await ctx.batch.add(given)
        except InvalidStep as error:
            return str(error)
        return "added"

    async with shop.working():
        row = await shop.ended(await page.aenqueue())
    assert "takes tasks, such as resize.build(7)" in row["result"]
