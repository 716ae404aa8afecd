"""`ctx.after`: a task reads how the tasks before it ended."""

from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Context, Fail, SyncContext
from holdfast.errors import TaskCancelled, TaskFailed
from support import hostile
from support.workshop import Workshop


class Total(BaseModel):
    sum: int


def described(found: list[Any]) -> list[str]:
    return [type(one).__name__ if isinstance(one, Exception) else repr(one) for one in found]


def add_tasks(shop: Workshop) -> Any:
    @shop.task("work.count")
    async def count(number: int) -> Total:
        if number < 0:
            raise Fail("it is below zero")
        return Total(sum=number)

    return count


async def test_results_and_errors_come_in_order_and_typed(shop: Workshop) -> None:
    count = add_tasks(shop)
    errors: list[Any] = []

    @shop.task("work.report")
    async def report(ctx: Context) -> list[str]:
        found = await ctx.after(count)
        errors.extend(one for one in found if isinstance(one, Exception))
        return described(found)

    numbers = [await count.aenqueue(n) for n in (1, -1, 3, 4)]
    await numbers[3].acancel("not needed")
    last = await report.using(after=numbers, when="ended").aenqueue()
    async with shop.working():
        row = await shop.ended(last)
    assert row["result"] == ["Total(sum=1)", "TaskFailed", "Total(sum=3)", "TaskCancelled"]
    failed, cancelled = errors
    assert isinstance(failed, TaskFailed)
    assert isinstance(cancelled, TaskCancelled)
    assert failed.task_id == numbers[1].task_id
    assert "it is below zero" in str(failed)
    assert "not needed" in str(cancelled)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), ["{'sum': 1}", "{'sum': 2}"]),
        ((Total,), ["Total(sum=1)", "Total(sum=2)"]),
        ((Total, dict[str, int]), ["Total(sum=1)", "{'sum': 2}"]),
    ],
)
async def test_a_plain_function_reads_them_as_the_types_that_it_names(
    shop: Workshop, kinds: tuple[Any, ...], expected: list[str]
) -> None:
    count = add_tasks(shop)

    @shop.task("work.report")
    def report(ctx: SyncContext) -> list[str]:
        return described(ctx.after(*kinds))

    batch = await shop.app.aenqueue_many([count.build(1), count.build(2)], then=report.build())
    assert batch.then is not None
    async with shop.working():
        row = await shop.ended(batch.then)
    assert row["result"] == expected


async def test_they_are_there_after_a_step_and_in_a_resumed_run(shop: Workshop) -> None:
    count = add_tasks(shop)

    @shop.task("work.report")
    async def report(ctx: Context) -> list[str]:
        await ctx.sleep(0.2)
        return described(await ctx.after(Total))

    last = await report.using(after=[await count.aenqueue(5)]).aenqueue()
    async with shop.working():
        row = await shop.ended(last)
    assert row["result"] == ["Total(sum=5)"]


async def test_more_types_than_tasks_are_refused(shop: Workshop) -> None:
    count = add_tasks(shop)

    @shop.task("work.report", max_attempts=1)
    async def report(ctx: Context) -> None:
        await ctx.after(Total, Total)

    last = await report.using(after=[await count.aenqueue(5)]).aenqueue()
    async with shop.working():
        await shop.ended(last)
    (error,) = await shop.errors(last)
    assert "2 types for 1 tasks" in error["message"]


async def test_a_task_after_no_other_has_none(shop: Workshop) -> None:
    @shop.task("work.report")
    async def report(ctx: Context) -> list[Any]:
        return list(await ctx.after())

    async with shop.working():
        row = await shop.ended(await report.aenqueue())
    assert row["result"] == []


async def test_a_handler_in_a_process_reads_them_too(shop: Workshop) -> None:
    shop.app = hostile.app
    with hostile.app.at(shop.db.dsn):
        before = [await hostile.double.aenqueue(n) for n in (1, 2)]
        last = await hostile.after.using(after=before).aenqueue()
        async with shop.working():
            row = await shop.ended(last)
    assert row["result"] == [2, 4]
