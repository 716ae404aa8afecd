"""What a handler may do while drain runs it: write, report progress, be cancelled, and end in any way."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App, Context, Linear, NoRetry, SyncContext
from holdfast._engine import Engine, tasks
from holdfast.testing import Sandbox


def test_an_async_handler_runs_in_a_loop_of_its_own(holdfast: Sandbox, app: App) -> None:
    @app.task("any.wait")
    async def wait() -> str:
        await asyncio.sleep(0)
        return "awaited"

    wait.enqueue()
    assert [ran.result for ran in holdfast.drain()] == ["awaited"]


def test_a_plain_function_runs_in_the_thread_of_the_test(holdfast: Sandbox, app: App) -> None:
    books = sqlite3.connect(":memory:")  # refuses every other thread

    @app.task("any.look")
    def look() -> int:
        books.execute("select 1")
        return threading.get_ident()

    look.enqueue()
    assert [ran.result for ran in holdfast.drain()] == [threading.get_ident()]
    books.close()


def test_what_a_handler_writes_in_its_transaction_is_committed_with_the_outcome(
    holdfast: Sandbox, app: App
) -> None:
    connection = holdfast.connect()
    connection.execute("create table public.ledger (amount integer)")

    @app.task("billing.book", max_attempts=2, retry=Linear(step=0))
    def book(ctx: SyncContext, amount: int) -> None:
        with ctx.transaction() as tx:
            tx.execute("insert into public.ledger values (%s)", [amount])
        if ctx.attempt == 1:
            raise ConnectionError

    @app.task("billing.abook")
    async def abook(ctx: Context, amount: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("insert into public.ledger values (%s)", [amount])

    book.using(priority=1).enqueue(amount=7)
    abook.enqueue(amount=8)
    assert [ran.status for ran in holdfast.drain()] == ["retrying", "succeeded", "succeeded"]
    booked = connection.execute("select amount from public.ledger order by amount").fetchall()
    assert booked == [(7,), (8,)]


def test_a_handler_learns_at_its_next_checkpoint_that_the_task_was_cancelled(
    holdfast: Sandbox, app: App
) -> None:
    steps: list[str] = []

    @app.task("any.long")
    def long(ctx: SyncContext) -> None:
        steps.append("before")
        ctx.raise_if_stopped()
        handle.cancel("changed our mind")
        assert ctx.should_stop
        ctx.raise_if_stopped()
        steps.append("after")

    handle = long.enqueue()
    [ran] = holdfast.drain()
    assert steps == ["before"]
    assert (ran.status, ran.error) == ("cancelled", "changed our mind")


def test_a_task_that_is_deleted_while_it_runs_is_told_as_deleted(holdfast: Sandbox, app: App) -> None:
    engine = Engine(holdfast.connect())

    @app.task("any.long")
    def long(ctx: SyncContext) -> None:
        engine.run(tasks.delete_task(ctx.task_id))
        ctx.raise_if_stopped()

    long.enqueue()
    assert [ran.status for ran in holdfast.drain()] == ["deleted"]


def test_progress_can_be_seen_at_once(holdfast: Sandbox, app: App) -> None:
    seen: list[Any] = []

    @app.task("any.long")
    def long(ctx: SyncContext) -> None:
        ctx.progress(1, 2, "half")
        seen.append(holdfast.task(ctx.task_id).progress)

    long.enqueue()
    holdfast.drain()
    assert seen == [{"done": 1, "total": 2, "note": "half"}]


def test_middleware_goes_around_every_handler(holdfast: Sandbox, app: App) -> None:
    calls: list[tuple[str, Any]] = []

    @app.middleware
    async def note(call: Any, proceed: Any) -> Any:
        calls.append((call.type, call.payload))
        return await proceed()

    @app.task("any.plain")
    def plain(n: int) -> int:
        return n

    @app.task("any.awaited")
    async def awaited(n: int) -> int:
        return n

    plain.enqueue(n=1)
    awaited.enqueue(n=2)
    assert [ran.result for ran in holdfast.drain()] == [1, 2]
    assert calls == [("any.plain", {"n": 1}), ("any.awaited", {"n": 2})]


def test_a_handler_past_its_limit_is_interrupted(holdfast: Sandbox, app: App) -> None:
    @app.task("any.spin", timeout=0.05, retry=NoRetry())
    def spin() -> None:
        while True:
            time.monotonic()

    @app.task("any.hang", timeout=0.05, retry=NoRetry())
    async def hang() -> None:
        await asyncio.Event().wait()

    spin.enqueue()
    hang.enqueue()
    told = holdfast.drain()
    assert [ran.status for ran in told] == ["failed", "failed"]
    assert all("limit" in str(ran.error) for ran in told)


@pytest.mark.parametrize("end", [pytest.fail, pytest.skip])
def test_the_end_of_a_test_inside_a_handler_ends_the_test(
    holdfast: Sandbox, app: App, end: Callable[[str], None]
) -> None:
    @app.task("any.thing")
    def thing() -> None:
        end("enough")

    thing.enqueue()
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception), match="enough"):
        holdfast.drain()


def test_an_interrupt_inside_a_handler_ends_the_drain(holdfast: Sandbox, app: App) -> None:
    @app.task("any.thing")
    def thing() -> None:
        raise KeyboardInterrupt

    thing.enqueue()
    with pytest.raises(KeyboardInterrupt):
        holdfast.drain()


def test_a_handler_that_exits_fails_only_its_task(holdfast: Sandbox, app: App) -> None:
    @app.task("any.leave", retry=NoRetry())
    def leave() -> None:
        raise SystemExit(3)

    leave.enqueue()
    assert [ran.status for ran in holdfast.drain()] == ["failed"]
