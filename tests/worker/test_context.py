"""What a handler may know and do while it runs, and what it does not see of others."""

import asyncio
import contextlib
import contextvars
import threading
from typing import Any

import pytest

from holdfast import Context, SyncContext
from support.workshop import Workshop

VARIABLE = contextvars.ContextVar("variable", default="unset")


async def test_a_handler_knows_its_task(shop: Workshop) -> None:
    @shop.task("work.know")
    async def know(ctx: Context) -> list[Any]:
        return [str(ctx.task_id), ctx.type, ctx.attempt, ctx.max_attempts, ctx.metadata]

    async with shop.working():
        handle = await know.using(metadata={"tenant": 7}, max_attempts=4).aenqueue()
        row = await shop.ended(handle)
    assert row["result"] == [str(handle.task_id), "work.know", 1, 4, {"tenant": 7}]


async def test_progress_is_shown_soon(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long(ctx: Context) -> None:
        ctx.progress(3, 10, "reading")
        await gate.wait()

    async with shop.working(heartbeat="5m", lease="1h", worker_timeout="1h"):
        handle = await long.aenqueue()
        row = await shop.until(
            "select progress from queues.task_status where task_id = %s and progress is not null",
            handle.task_id,
        )
        gate.set()
    assert row["progress"] == {"done": 3, "total": 10, "note": "reading"}


@pytest.mark.parametrize(
    ("done", "note"), [("nan", "x"), ("9" * 4000, "x"), ("1", "\0\ud800"), ("inf", "x" * 100_000)]
)
async def test_odd_progress_costs_nobody_a_lease(shop: Workshop, done: str, note: str) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long(ctx: Context) -> None:
        ctx.progress(int(done) if done.isdigit() else float(done), note=note)
        await gate.wait()

    async with shop.working(heartbeat="100ms"):
        handle = await long.aenqueue()
        await shop.until(
            "select from queues.task_status where task_id = %s and progress is not null", handle.task_id
        )
        gate.set()
        assert (await shop.ended(handle))["attempt"] == 1
    assert not shop.lines("heartbeat_failed")


async def test_an_async_handler_is_cancelled_when_its_task_is(shop: Workshop) -> None:
    seen: list[str] = []

    @shop.task("work.long")
    async def long(ctx: Context) -> None:
        assert not ctx.should_stop
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(f"cancelled: {ctx.should_stop} {bool(ctx.should_stop)}")
            raise

    async with shop.working(heartbeat="100ms"):
        handle = await long.aenqueue()
        await shop.becomes(handle, "running")
        await handle.acancel("not needed")
        await shop.sees(lambda: seen)
        assert (await shop.ended(handle))["status"] == "cancelled"
    assert seen == ["cancelled: True True"]


async def test_a_handler_in_a_thread_is_ended_at_its_next_checkpoint(shop: Workshop) -> None:
    seen: list[BaseException] = []

    @shop.task("work.long")
    def long(ctx: SyncContext) -> None:
        try:
            while True:
                ctx.raise_if_stopped()
        except Exception:  # noqa: BLE001 - as many handlers do
            raise AssertionError("it was taken for an error") from None
        except BaseException as error:
            seen.append(error)
            raise

    async with shop.working(heartbeat="100ms") as worker:
        handle = await long.aenqueue()
        await shop.becomes(handle, "running")
        await handle.acancel()
        await shop.sees(lambda: not worker._parts.jobs.slots.running)
    assert [type(error).__name__ for error in seen] == ["Stopped"]


async def test_a_handler_that_ignores_its_cancellation_changes_nothing(shop: Workshop) -> None:
    @shop.task("work.stubborn")
    async def stubborn() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "done anyway"

    async with shop.working(heartbeat="100ms"):
        handle = await stubborn.aenqueue()
        await shop.becomes(handle, "running")
        await handle.acancel()
        await shop.logged("result_refused", verdict="cancelled")
        row = await shop.ended(handle)
    assert (row["status"], row["result"]) == ("cancelled", None)


async def test_a_task_that_is_deleted_stops_and_can_be_restored_with_its_attempt(shop: Workshop) -> None:
    @shop.task("work.long")
    async def long() -> None:
        await asyncio.Event().wait()

    async with shop.working(heartbeat="100ms"):
        handle = await long.aenqueue()
        await shop.becomes(handle, "running")
        shop.conn.execute("select queues.delete_task(%s)", [handle.task_id])
        row = await shop.until("select parked_attempt from queues.deletion where parked_run_at is not null")
    assert row["parked_attempt"] == 0


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_what_a_handler_sets_in_its_context_is_not_seen_by_the_next(shop: Workshop, kind: str) -> None:
    def look() -> str:
        before = VARIABLE.get()
        VARIABLE.set("set by a handler")
        return before

    async def alook() -> str:
        return look()

    task: Any = shop.task("work.look")(alook if kind == "async" else look)
    async with shop.working(worker_concurrency=1):
        handles = await task.aenqueue_many([{}] * 4)
        await shop.ended(*handles)
    results = {row[0] for row in shop.conn.execute("select result #>> '{}' from queues.outcome").fetchall()}
    assert results == {"unset"}


async def test_a_handler_in_a_thread_sees_what_middleware_has_set(shop: Workshop) -> None:
    async def set_variable(call: Any, proceed: Any) -> Any:
        VARIABLE.set(f"{call.type} {call.attempt} {call.payload} {call.metadata}")
        return await proceed()

    @shop.task("work.look")
    def look(number: int) -> str:
        return VARIABLE.get()

    shop.app.middleware(set_variable)
    async with shop.working():
        row = await shop.ended(await look.using(metadata={"a": 1}).aenqueue(number=1))
    assert row["result"] == "work.look 1 {'number': 1} {'a': 1}"


async def test_middleware_wraps_in_the_order_of_registration(shop: Workshop) -> None:
    seen: list[str] = []

    def named(name: str) -> Any:
        async def middleware(call: Any, proceed: Any) -> Any:
            seen.append(f"{name} in")
            result = await proceed()
            seen.append(f"{name} out")
            return result

        return middleware

    @shop.task("work.note")
    async def note() -> str:
        seen.append("handler")
        return "result"

    shop.app.middleware(named("outer"))
    shop.app.middleware(named("inner"))
    async with shop.working():
        row = await shop.ended(await note.aenqueue())
    assert seen == ["outer in", "inner in", "handler", "inner out", "outer out"]
    assert row["result"] == "result"


async def test_what_middleware_raises_the_task_raised(shop: Workshop) -> None:
    async def refuse(call: Any, proceed: Any) -> Any:
        raise PermissionError("not today")

    @shop.task("work.note")
    async def note() -> None:
        raise AssertionError("never called")

    shop.app.middleware(refuse)
    async with shop.working():
        row = await shop.becomes(await note.aenqueue(), "retrying")
    assert row["last_error"] == "PermissionError: not today"


async def test_a_line_that_a_handler_logs_names_its_task(shop: Workshop) -> None:
    @shop.task("work.talk")
    async def talk(ctx: Context) -> None:
        ctx.log.info("hello", number=7)

    async with shop.working():
        handle = await talk.aenqueue()
        await shop.ended(handle)
    (line,) = shop.lines("hello")
    assert (line["task_id"], line["type"], line["attempt"], line["number"]) == (
        str(handle.task_id),
        "work.talk",
        1,
        7,
    )


async def test_a_cancelled_thread_behind_middleware_is_waited_for(shop: Workshop) -> None:
    gate = threading.Event()
    ended: list[str] = []

    async def pass_on(call: Any, proceed: Any) -> Any:
        return await proceed()

    @shop.task("work.long")
    def long(ctx: SyncContext) -> None:
        gate.wait()
        ended.append("handler")

    shop.app.middleware(pass_on)
    async with shop.working(heartbeat="100ms") as worker:
        handle = await long.aenqueue()
        await shop.becomes(handle, "running")
        await handle.acancel()
        await shop.logged("task_stopped", why="cancelled")
        assert worker._parts.jobs.slots.running
        gate.set()
        await shop.sees(lambda: not worker._parts.jobs.slots.running)
    assert ended == ["handler"]
