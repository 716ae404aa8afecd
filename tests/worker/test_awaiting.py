"""A method of ctx that is called and not awaited fails the attempt, and the error names its line."""

import asyncio
import gc
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Cancel, Context, NoRetry, SyncContext
from holdfast._workflows.calls import AwaitedCall, Calls, CallSite
from holdfast.handle import handle_of
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
        if ctx.wait("ok", bool):  # type: ignore[truthy-bool]
            return "paid"
        return "refused"

    message = await failed(shop, pay)
    assert f"ctx.wait('ok') at {__file__}:{line_of(pay, 'ctx.wait')} was never awaited" in message


async def test_a_step_that_is_not_awaited_fails_the_attempt_and_its_line_is_named(shop: Workshop) -> None:
    async def run(ctx: Context) -> str:
        await ctx.step(work, 1)
        ctx.step(work, 2)  # type: ignore[unused-coroutine]
        return "done"

    message = await failed(shop, run)
    assert f"ctx.step(work) at {__file__}:{line_of(run, 'work, 2')} was never awaited" in message


FORGOTTEN: dict[str, Callable[[Context, Any], Any]] = {
    "ctx.sleep(3.0)": lambda ctx, _: ctx.sleep(3),
    "ctx.sleep_until(": lambda ctx, _: ctx.sleep_until(ctx.now()),
    "ctx.start('child')": lambda ctx, task: ctx.start(task),
    "ctx.map('child')": lambda ctx, task: ctx.map(task, [1]),
    "ctx.first()": lambda ctx, task: ctx.first(task.build()),
    "ctx.after()": lambda ctx, _: ctx.after(),
    "ctx.batch.add()": lambda ctx, task: ctx.batch.add(task.build()),
    "ctx.step_in_transaction(work)": lambda ctx, _: ctx.step_in_transaction(work),  # type: ignore[arg-type]
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
        ctx.step_transaction("pay")
        return "done"

    def run_sync(ctx: SyncContext) -> str:
        ctx.step_transaction("pay")
        return "done"

    assert "ctx.step_transaction('pay')" in await failed(shop, run if kind == "async" else run_sync)


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


@pytest.mark.parametrize("following", ["step", "since", "check", "begun before", "transaction"])
async def test_nothing_happens_after_a_call_that_was_forgotten(shop: Workshop, following: str) -> None:
    happened = []

    async def pay() -> None:
        happened.append("paid")

    async def run(ctx: Context) -> None:
        kept = ctx.step(pay, key="kept")
        ctx.wait("approval")  # type: ignore[unused-coroutine]
        match following:
            case "step":
                await ctx.step(pay)
            case "since":
                ctx.since("2026-11")
            case "check":
                ctx.raise_if_stopped()
            case "transaction":
                await ctx.step_in_transaction(pay)  # type: ignore[arg-type]
        happened.append("went on")
        await kept

    message = await failed(shop, run)
    assert f"ctx.wait('approval') at {__file__}:{line_of(run, 'approval')} was never awaited" in message
    assert happened == (["went on"] if following == "begun before" else [])


async def test_a_plain_function_does_not_go_on_after_a_block_that_it_forgot(shop: Workshop) -> None:
    happened = []

    def pay() -> None:
        happened.append("paid")

    def run(ctx: SyncContext) -> None:
        ctx.step_transaction("reserve")
        ctx.step(pay)

    assert f"test_awaiting.py:{line_of(run, 'reserve')} was never entered" in await failed(shop, run)
    assert happened == []


async def test_a_run_that_has_forgotten_a_call_is_not_suspended(shop: Workshop) -> None:
    async def run(ctx: Context) -> None:
        async def forgetful() -> None:
            await ctx.step(work)
            ctx.step(work, key="forgotten")  # type: ignore[unused-coroutine]

        await asyncio.gather(ctx.wait("never"), forgetful())

    assert "was never awaited" in await failed(shop, run)


async def test_a_step_in_a_task_that_nobody_awaits_ends_with_the_handler(shop: Workshop) -> None:
    began, ended = asyncio.Event(), []

    async def pay() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def run(ctx: Context) -> str:
        step = asyncio.create_task(ctx.step(pay))
        await began.wait()
        return f"done {step.done()}"

    message = await failed(shop, run)
    assert f"ctx.step(pay) at {__file__}:{line_of(run, 'step(pay)')} had not ended" in message
    assert ended == ["cancelled"]


async def test_a_step_that_has_not_begun_its_work_does_not_begin_after_the_handler(shop: Workshop) -> None:
    happened = []

    async def pay() -> None:
        happened.append("paid")

    async def run(ctx: Context) -> None:
        step = asyncio.create_task(ctx.step(pay))
        await asyncio.sleep(0)
        assert not step.done()

    assert "had not ended when the handler returned" in await failed(shop, run)
    assert happened == []


async def test_a_failure_that_nobody_looks_at_fails_the_attempt(shop: Workshop) -> None:
    async def pay() -> None:
        raise ValueError("no money")

    async def run(ctx: Context) -> None:
        task = asyncio.create_task(ctx.step(pay))
        await asyncio.wait([task])

    message = await failed(shop, run)
    assert f"{line_of(run, 'step(pay)')} failed in an asyncio task that was never awaited" in message


async def test_waits_may_be_left(shop: Workshop) -> None:
    @shop.task("work.race")
    async def race(ctx: Context) -> int:
        sleeping = asyncio.create_task(ctx.sleep(3600))
        waiting = asyncio.create_task(ctx.wait("never"))
        stepping = asyncio.create_task(ctx.step(work, 7))
        await asyncio.wait([sleeping, waiting, stepping], return_when=asyncio.FIRST_COMPLETED)
        return int(stepping.result())

    async with shop.working():
        row = await shop.ended(await race.aenqueue())
    assert (row["status"], row["result"]) == ("succeeded", 7), row


async def test_what_runs_beside_a_step_that_fails_is_cancelled_and_the_error_is_kept(shop: Workshop) -> None:
    began, ended = asyncio.Event(), []

    async def slow() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def broken() -> None:
        await began.wait()
        raise ValueError("no money")

    async def run(ctx: Context) -> None:
        await asyncio.gather(ctx.step(slow), ctx.step(broken))

    assert "no money" in await failed(shop, run)
    assert ended == ["cancelled"]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_the_transaction_of_a_task_has_to_be_entered(shop: Workshop, kind: str) -> None:
    async def run(ctx: Context) -> None:
        ctx.transaction()

    def run_sync(ctx: SyncContext) -> None:
        ctx.transaction()

    handler = run if kind == "async" else run_sync
    message = await failed(shop, handler)
    assert (
        f"ctx.transaction() at {__file__}:{line_of(handler, 'ctx.transaction')} was never entered" in message
    )


async def test_with_in_an_async_handler_says_what_to_write(shop: Workshop) -> None:
    async def run(ctx: Context) -> None:
        with ctx.step_transaction("pay"):  # type: ignore[attr-defined]
            """Not entered."""

    assert "Write async with." in await failed(shop, run)


async def test_a_plain_function_calls_no_async_function_in_its_transaction(shop: Workshop) -> None:
    def run(ctx: SyncContext) -> None:
        ctx.step_in_transaction(work)  # type: ignore[arg-type, unused-coroutine]

    assert "work is async, and the handler of work.forgets is not" in await failed(shop, run)


SENT: dict[str, Callable[[Any], Any]] = {
    "task.aenqueue()": lambda task: task.aenqueue(),
    "task.aenqueue_many()": lambda task: task.aenqueue_many([()]),
    "task.asignal()": lambda task: task.asignal("key", "ok"),
    "handle.asignal()": lambda task: handle_of(UNKNOWN, task._home).asignal("ok"),
    "handle.acancel()": lambda task: handle_of(UNKNOWN, task._home).acancel(),
}
UNKNOWN = "019a8f6e-0000-7000-8000-000000000000"


@pytest.mark.parametrize("called", SENT)
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_what_a_handler_sends_may_not_be_forgotten(shop: Workshop, called: str, kind: str) -> None:
    @shop.task("work.child")
    def child() -> None: ...

    async def run() -> str:
        SENT[called](child)
        return "done"

    def run_sync() -> str:
        SENT[called](child)
        return "done"

    message = await failed(shop, run if kind == "async" else run_sync)
    assert f"{called} at {__file__}" in message
    assert "was never awaited" in message


async def test_a_handler_of_batches_may_not_forget_what_it_sends(shop: Workshop) -> None:
    @shop.task("work.child")
    def child() -> None: ...

    @shop.task("work.many", batch=10, retry=NoRetry())
    async def many(items: list[int]) -> None:
        child.aenqueue()  # type: ignore[unused-coroutine]

    async with shop.working():
        row = await shop.ended(await many.aenqueue(1))
    assert row["status"] == "failed"
    assert "task.aenqueue() at " in row["last_error"]


async def test_what_a_handler_hands_on_may_be_awaited_after_its_end(shop: Workshop) -> None:
    others: list[Any] = []

    @shop.task("work.child")
    def child() -> None: ...

    @shop.task("work.hands_on")
    async def hands_on() -> None:
        others.append(child.aenqueue())

    async with shop.working():
        assert (await shop.ended(await hands_on.aenqueue()))["status"] == "succeeded"
        assert (await shop.ended(await others.pop()))["status"] == "succeeded"


async def test_an_error_of_the_handler_is_not_hidden(shop: Workshop) -> None:
    async def run(ctx: Context) -> None:
        ctx.step(work)  # type: ignore[unused-coroutine]
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
        left = await works.ended(await hostile.leaves_a_step.aenqueue())
    assert "ctx.wait('ok')" in row["last_error"]
    assert "was never awaited" in row["last_error"]
    assert "ctx.step(never)" in left["last_error"]
    assert "had not ended when the handler returned" in left["last_error"]


async def test_each_use_as_a_value_is_refused() -> None:
    call = AwaitedCall(Calls(), CallSite("ctx.wait", "ok"), work, 7)
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
    def run(ctx: SyncContext) -> None:
        with ctx.step_transaction("pay"):
            ctx.sleep(1)

    assert "sleep is called inside the step pay" in await failed(shop, run)


async def test_a_coroutine_is_no_function(shop: Workshop) -> None:
    async def run(ctx: Context) -> None:
        await ctx.step(work(7))  # type: ignore[call-overload]

    assert "without calling charge yourself" in await failed(shop, run)


async def test_a_function_that_is_no_task_cannot_be_mapped(shop: Workshop) -> None:
    async def run(ctx: Context) -> None:
        await ctx.map(work, [1])  # type: ignore[call-overload]

    assert "Decorate the function with @app.task" in await failed(shop, run)
