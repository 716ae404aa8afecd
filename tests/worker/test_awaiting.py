"""A method of ctx that is called and not awaited fails the attempt, and the error names its line."""

import asyncio
import gc
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Cancel, Context, NoRetry
from holdfast.workflows.calls import AwaitedCall, Calls
from support import hostile
from support.workshop import Workshop


async def work(n: int = 0) -> int:
    return n


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if text in line)


async def failed(shop: Workshop, handler: Callable[..., Any]) -> str:
    """The message of a handler that must fail."""
    task = shop.task("work.forgets", retry=NoRetry())(handler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with shop.working():
            row = await shop.ended(await task.aenqueue())
        gc.collect()
    assert row["status"] == "failed", row["result"]
    return str(row["last_error"])


async def test_a_wait_that_is_used_as_a_condition_does_not_approve(shop: Workshop) -> None:
    async def pay(ctx: Context) -> str:
        if ctx.wait("ok", bool):
            return "paid"
        return "refused"

    message = await failed(shop, pay)
    assert f"ctx.wait('ok') at {__file__}:{line_of(pay, 'ctx.wait')} was never awaited" in message


async def test_a_step_that_is_not_awaited_fails_the_attempt_and_its_line_is_named(shop: Workshop) -> None:
    async def run(ctx: Context) -> str:
        await ctx.step(work, 1)
        ctx.step(work, 2)
        return "done"

    message = await failed(shop, run)
    assert f"ctx.step(work) at {__file__}:{line_of(run, 'work, 2')} was never awaited" in message


FORGOTTEN: dict[str, Callable[[Context, Any], Any]] = {
    "ctx.sleep(3.0)": lambda ctx, _: ctx.sleep(3),
    "ctx.start('child')": lambda ctx, task: ctx.start(task),
    "ctx.map('child')": lambda ctx, task: ctx.map(task, [1]),
    "ctx.first()": lambda ctx, task: ctx.first(task.build()),
    "ctx.after()": lambda ctx, _: ctx.after(),
    "ctx.batch.add()": lambda ctx, task: ctx.batch.add(task.build()),
    "ctx.transaction('pay')": lambda ctx, _: ctx.transaction("pay", work),
    "ctx.callback('ok')": lambda ctx, _: ctx.callback("ok"),
}


@pytest.mark.parametrize("called", FORGOTTEN)
async def test_no_method_may_be_forgotten(
    shop: Workshop, called: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_WEB_SECRET", "s" * 40)
    monkeypatch.setenv("HOLDFAST_WEB_URL", "http://localhost:1")

    @shop.task("work.child")
    def child() -> None: ...

    async def run(ctx: Context) -> str:
        FORGOTTEN[called](ctx, child)
        return "done"

    message = await failed(shop, run)
    assert called in message
    assert "was never awaited" in message


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_transaction_whose_block_is_not_entered_fails_the_attempt(shop: Workshop, kind: str) -> None:
    async def run(ctx: Context) -> str:
        ctx.transaction("pay")
        return "done"

    def run_sync(ctx: Context) -> str:
        ctx.transaction("pay")
        return "done"

    assert "ctx.transaction('pay')" in await failed(shop, run if kind == "async" else run_sync)


@pytest.mark.parametrize("end", ["cancel", "continue", "return"])
async def test_every_wanted_end_of_a_run_notices_it(shop: Workshop, end: str) -> None:
    async def run(ctx: Context, n: int = 0) -> Any:
        forgotten = ctx.step(work, n)
        if end == "cancel":
            raise Cancel("not needed")
        if end == "continue":
            ctx.continue_as(n=1)
        return forgotten

    assert "ctx.step(work)" in await failed(shop, run)


async def test_an_error_of_the_handler_is_not_hidden(shop: Workshop) -> None:
    async def run(ctx: Context) -> None:
        ctx.step(work)
        raise ValueError("no money")

    assert "no money" in await failed(shop, run)


async def test_asyncio_may_await_it(shop: Workshop) -> None:
    @shop.task("work.together")
    async def together(ctx: Context) -> list[int]:
        task = asyncio.create_task(ctx.step(work, 1, key="task"))
        async with asyncio.TaskGroup() as group:
            grouped = group.create_task(ctx.step(work, 2, key="group"))
        gathered = await asyncio.gather(ctx.step(work, 3, key="a"), ctx.step(work, 4, key="b"))
        limited = await asyncio.wait_for(ctx.step(work, 5, key="limit"), 30)
        future = asyncio.ensure_future(ctx.step(work, 6, key="future"))
        kept = ctx.step(work, 7, key="kept")
        async with asyncio.timeout(30):
            return [await task, grouped.result(), *gathered, limited, await future, await kept]

    async with shop.working():
        row = await shop.ended(await together.aenqueue())
    assert row["result"] == [1, 2, 3, 4, 5, 6, 7]


async def test_a_run_that_is_suspended_meanwhile_has_forgotten_nothing(shop: Workshop) -> None:
    @shop.task("work.later")
    async def later(ctx: Context) -> int:
        second = ctx.step(work, 2)
        await ctx.sleep(0.3)
        return int(await second)

    async with shop.working():
        row = await shop.ended(await later.aenqueue())
    assert (row["status"], row["result"]) == ("succeeded", 2)


async def test_a_child_process_notices_it(works: Workshop) -> None:
    async with works.working():
        row = await works.ended(await hostile.forgets.aenqueue())
    assert "ctx.wait('ok')" in row["last_error"]
    assert "was never awaited" in row["last_error"]


async def test_each_use_as_a_value_is_refused() -> None:
    call = AwaitedCall(Calls(), ("wait", "ok"), work, 7)
    uses: list[Callable[[], object]] = [
        lambda: bool(call),
        lambda: call == "yes",
        lambda: call != "yes",
        lambda: call > 1,
        lambda: call + 1,
        lambda: list(call),
        lambda: f"{call}",
        lambda: call["a"],
        lambda: call.approved,
    ]
    for use in uses:
        with pytest.raises(Exception, match=r"ctx\.wait\('ok'\).* was never awaited"):
            use()
    assert await call == 7


async def test_a_step_inside_a_step_is_refused(shop: Workshop) -> None:
    async def run(ctx: Context) -> None:
        async def outer() -> None:
            await ctx.step(work)

        await ctx.step(outer)

    assert "work is called inside the step outer" in await failed(shop, run)


async def test_a_step_inside_a_transaction_is_refused(shop: Workshop) -> None:
    def run(ctx: Context) -> None:
        with ctx.transaction("pay"):
            ctx.sleep(1)

    assert "sleep is called inside the step pay" in await failed(shop, run)


async def test_a_coroutine_is_no_function(shop: Workshop) -> None:
    async def run(ctx: Context) -> None:
        await ctx.step(work(7))  # type: ignore[arg-type]

    assert "without calling charge yourself" in await failed(shop, run)


async def test_a_function_that_is_no_task_cannot_be_mapped(shop: Workshop) -> None:
    async def run(ctx: Context) -> None:
        await ctx.map(work, [1])

    assert "Decorate the function with @app.task" in await failed(shop, run)
