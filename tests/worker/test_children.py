"""ctx.start, ctx.map and ctx.first: tasks of their own that a run starts once, and joins without a worker."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from holdfast import Context, NoRetry, SyncContext
from holdfast._worker.settling import JoinLooker
from holdfast.errors import TaskFailed
from support.workshop import Workshop


@pytest.mark.parametrize("is_async", [True, False])
async def test_map_returns_the_results_in_the_order_of_the_items(shop: Workshop, is_async: bool) -> None:
    begun = 0

    @shop.task("work.double")
    def double(n: int) -> int:
        return 2 * n

    if is_async:

        @shop.task("work.all")
        async def run_all(ctx: Context) -> list[int]:
            nonlocal begun
            begun += 1
            found: list[int] = await ctx.map(double, range(20))
            return found
    else:

        @shop.task("work.all")
        def run_all(ctx: SyncContext) -> list[int]:
            nonlocal begun
            begun += 1
            found: list[int] = ctx.map(double, range(20))
            return found

    async with shop.working():
        row = await shop.ended(await run_all.aenqueue())
    assert (row["status"], row["result"], begun) == ("succeeded", [2 * n for n in range(20)], 2)


async def test_a_worker_that_suspends_a_join_looks_at_the_ends_that_follow(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._worker.settling.NO_JOINS_SECONDS", 3600)
    looked: list[str] = []
    look_at = JoinLooker._look_at

    async def watched(looker: JoinLooker, ended: list[str]) -> None:
        looked.extend(ended)
        await look_at(looker, ended)

    monkeypatch.setattr(JoinLooker, "_look_at", watched)
    gate = asyncio.Event()

    @shop.task("work.gated")
    async def gated(ctx: Context, n: int) -> str:
        await gate.wait()
        return f"{ctx.task_id} {n}"

    @shop.task("work.all")
    async def run_all(ctx: Context) -> str:
        found: list[str] = await ctx.map(gated, [7])
        return found[0]

    @shop.task("work.before")
    async def before() -> None:
        pass

    async with shop.working():
        await shop.ended(await before.aenqueue())
        handle = await run_all.aenqueue()
        await shop.becomes(handle, "suspended")
        gate.set()
        row = await shop.ended(handle)
        await shop.sees(lambda: row["result"].removesuffix(" 7") in looked)


async def test_map_of_nothing_returns_at_once(shop: Workshop) -> None:
    @shop.task("work.double")
    def double(n: int) -> int:
        return 2 * n

    @shop.task("work.all")
    async def run_all(ctx: Context) -> list[int]:
        found: list[int] = await ctx.map(double, [])
        return found

    async with shop.working():
        row = await shop.ended(await run_all.aenqueue())
    assert row["result"] == []


async def test_map_raises_one_group_with_every_failure_and_again_in_the_next_attempt(shop: Workshop) -> None:
    groups: list[list[str]] = []

    @shop.task("work.odd", retry=NoRetry())
    def odd(n: int) -> int:
        if n % 2 == 0:
            raise ValueError(f"{n} is even")
        return n

    @shop.task("work.all")
    async def run_all(ctx: Context) -> str:
        try:
            await ctx.map(odd, range(4))
        except* TaskFailed as group:
            groups.append([str(error) for error in group.exceptions])
        await ctx.sleep(0.2)
        return "caught"

    async with shop.working():
        row = await shop.ended(await run_all.aenqueue())
    assert row["result"] == "caught"
    assert len(groups) == 2
    assert groups[0] == groups[1]
    assert ["0 is even" in groups[0][0], "2 is even" in groups[0][1]] == [True, True]


async def test_map_returns_failures_in_place(shop: Workshop) -> None:
    @shop.task("work.odd", retry=NoRetry())
    def odd(n: int) -> int:
        if n % 2 == 0:
            raise ValueError(f"{n} is even")
        return n

    @shop.task("work.all")
    def run_all(ctx: SyncContext) -> list[str]:
        return [type(one).__name__ for one in ctx.map(odd, range(3), return_exceptions=True)]

    async with shop.working():
        row = await shop.ended(await run_all.aenqueue())
    assert row["result"] == ["TaskFailed", "int", "TaskFailed"]


async def test_with_a_key_a_resumed_run_finds_results_by_key(shop: Workshop) -> None:
    items = ["b", "a"]

    @shop.task("work.shout")
    def shout(word: str) -> str:
        return word.upper()

    @shop.task("work.all")
    async def run_all(ctx: Context) -> list[str]:
        items.reverse()
        found: list[str] = await ctx.map(shout, list(items), key=lambda word: word)
        return found

    async with shop.working():
        row = await shop.ended(await run_all.aenqueue())
    assert row["result"] == ["B", "A"]


async def test_start_starts_a_child_once_and_does_not_wait(shop: Workshop) -> None:
    sent: list[int] = []
    ids: list[str] = []

    @shop.task("work.survey")
    def survey(order: int) -> None:
        sent.append(order)

    @shop.task("work.order")
    async def order(ctx: Context) -> str:
        handle = await ctx.start(survey, 7)
        ids.append(str(handle.task_id))
        await ctx.sleep(0.2)
        return "sent"

    async with shop.working():
        row = await shop.ended(await order.aenqueue())
        await shop.ended(UUID(ids[0]))
    assert (row["result"], sent, len(set(ids)), len(ids)) == ("sent", [7], 1, 2)


async def test_first_returns_the_first_success_and_cancels_the_others(shop: Workshop) -> None:
    @shop.task("work.broken", retry=NoRetry())
    def broken() -> str:
        raise ValueError("no")

    @shop.task("work.quick")
    def quick() -> str:
        return "quick"

    @shop.task("work.slow")
    def slow() -> str:
        return "slow"

    @shop.task("work.race")
    async def race(ctx: Context) -> str:
        won: str = await ctx.first(
            broken.build(), slow.using(delay=3600).build(), quick.using(delay=0.3).build()
        )
        return won

    async with shop.working():
        row = await shop.ended(await race.aenqueue())
        await shop.until("select from queues.task_status where type = 'work.slow' and status = 'cancelled'")
    assert row["result"] == "quick"


async def test_cancelling_a_run_cancels_the_children_it_waits_for(shop: Workshop) -> None:
    @shop.task("work.later")
    def later(n: int) -> int:
        return n

    @shop.task("work.all")
    async def run_all(ctx: Context) -> Any:
        return await ctx.map(later.using(delay=3600), range(3))

    async with shop.working():
        handle = await run_all.aenqueue()
        await shop.becomes(handle, "suspended")
        await handle.acancel("enough")
        await shop.until(
            "select from queues.task_status where type = 'work.later' having bool_and(status = 'cancelled')"
        )


async def test_a_join_that_takes_too_long_raises_timeout_error(shop: Workshop) -> None:
    @shop.task("work.later")
    def later(n: int) -> int:
        return n

    @shop.task("work.all")
    async def run_all(ctx: Context) -> str:
        try:
            await ctx.map(later.using(delay=3600), range(3), timeout=0.3)
        except TimeoutError as error:
            return str(error)
        return "not reached"

    async with shop.working():
        row = await shop.ended(await run_all.aenqueue())
    assert row["result"] == "the tasks of later did not end in time"


async def test_the_group_of_failed_children_names_the_first_cause(shop: Workshop) -> None:
    @shop.task("work.label", retry=NoRetry())
    def label(n: int) -> int:
        raise ValueError("no paper")

    @shop.task("work.all", retry=NoRetry())
    async def run_all(ctx: Context) -> None:
        await ctx.map(label, range(3))

    async with shop.working():
        handle = await run_all.aenqueue()
        await shop.ended(handle)
        [error] = await shop.errors(handle)
    assert "3 of 3 tasks of label did not succeed; the first: task " in error["message"]
    assert "ValueError: no paper" in error["message"]


async def test_a_child_that_is_cancelled_is_a_cancelled_task_in_the_group(shop: Workshop) -> None:
    @shop.task("work.later")
    def later(n: int) -> int:
        return n

    @shop.task("work.all")
    async def run_all(ctx: Context) -> str:
        try:
            await ctx.map(later.using(delay=3600), range(1))
        except ExceptionGroup as group:
            [error] = group.exceptions
            return f"{type(error).__name__}: {error}"
        return "not reached"

    async with shop.working():
        handle = await run_all.aenqueue()
        await shop.becomes(handle, "suspended")
        child = (await shop.until("select task_id from queues.task_status where type = 'work.later'"))[
            "task_id"
        ]
        await shop.app.handle(child).acancel("not now")
        row = await shop.ended(handle)
    assert row["result"].startswith("TaskCancelled: task ")
    assert row["result"].endswith("is cancelled: not now")


async def test_steps_and_children_run_at_the_same_time(shop: Workshop) -> None:
    @shop.task("work.double")
    def double(n: int) -> int:
        return 2 * n

    async def one() -> int:
        return 1

    @shop.task("work.all")
    async def run_all(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(ctx.step(one), ctx.map(double, [1, 2]), ctx.sleep(0.2)))

    async with shop.working():
        row = await shop.ended(await run_all.aenqueue())
    assert row["result"] == [1, [2, 4], None]


@pytest.mark.full
async def test_ten_thousand_children_give_as_many_results_or_errors_in_order(shop: Workshop) -> None:
    @shop.task("work.count", retry=NoRetry())
    async def count(n: int) -> int:
        if n % 100 == 7:
            raise ValueError(n)
        return n

    @shop.task("work.all")
    async def run_all(ctx: Context) -> list[int]:
        found = await ctx.map(count, range(10_000), return_exceptions=True)
        wrong = [n for n, one in enumerate(found) if not isinstance(one, TaskFailed) and one != n]
        return [len(found), len(wrong), sum(isinstance(one, TaskFailed) for one in found)]

    async with shop.working(worker_concurrency=200):
        row = await shop.ended(await run_all.aenqueue())
    assert row["result"] == [10_000, 0, 100]
