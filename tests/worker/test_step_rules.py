"""What a run may rely on when leases are lost, connections break, and handlers catch everything."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from holdfast import Context, Linear, NoRetry, SyncContext
from holdfast.errors import InvalidArgument, InvalidStep, StepFailed, StepResultMismatch
from support.proxy import Proxy
from support.workshop import Workshop


async def test_a_step_begins_when_those_before_it_are_on_disk(shop: Workshop) -> None:
    seen: list[list[str]] = []

    async def look(n: int) -> int:
        del n
        found = shop.conn.execute("select name from queues.step order by number").fetchall()
        seen.append([name for (name,) in found])
        return 1

    @shop.task("work.three")
    async def three(ctx: Context) -> None:
        for n in range(3):
            await ctx.step(look, n)

    async with shop.working():
        await shop.ended(await three.aenqueue())
    assert seen == [[], ["look"], ["look", "look#2"]]


async def test_the_last_step_travels_with_the_end(shop: Workshop) -> None:
    async def work() -> int:
        return 1

    @shop.task("work.one")
    async def one(ctx: Context) -> int:
        return int(await ctx.step(work))

    async with shop.working() as worker:
        await shop.ended(await one.aenqueue())
    assert "record_steps" not in worker.metrics.batches
    assert shop.conn.execute("select name from queues.step").fetchall() == [("work",)]


async def test_a_transaction_whose_lease_is_lost_is_rolled_back(shop: Workshop) -> None:
    shop.conn.execute("create table reservation (n integer)")
    begun: list[int] = []

    @shop.task("work.reserve")
    async def reserve(ctx: Context) -> int:
        begun.append(1)
        async with ctx.step_transaction("reserve") as db:
            await db.execute("insert into reservation values (1)")
            if len(begun) == 1:
                shop.conn.execute("update queues.lease set lease_until = '2000-01-01'")
                shop.conn.execute("select queues.sweep()")
        return len(begun)

    async with shop.working(heartbeat="5m", lease="1h", worker_timeout="1h"):
        row = await shop.ended(await reserve.aenqueue())
    assert row["result"] == 2
    assert shop.conn.execute("select count(*) from reservation").fetchone() == (1,)


async def test_a_connection_that_breaks_after_the_commit_repeats_the_record_and_not_the_step(
    shop: Workshop, proxy: Proxy
) -> None:
    done: list[int] = []

    async def work(n: int) -> int:
        done.append(n)
        return n

    @shop.task("work.many")
    async def many(ctx: Context) -> int:
        total = 0
        for n in range(30):
            total += await ctx.step(work, n)
            if n % 7 == 3:
                proxy.cut()
        return total

    async with shop.working(proxy.dsn):
        row = await shop.ended(await many.aenqueue())
    assert (row["result"], row["attempt"]) == (sum(range(30)), 1)
    assert done == list(range(30))
    assert shop.conn.execute("select count(*) from queues.step").fetchone() == (30,)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_handler_that_catches_everything_is_suspended_all_the_same(shop: Workshop, kind: str) -> None:
    begun: list[int] = []

    async def stubborn(ctx: Context) -> int:
        begun.append(1)
        with contextlib.suppress(BaseException):
            await ctx.sleep(0.3)
        with contextlib.suppress(BaseException):
            await ctx.wait("never", timeout=0.3)
        return len(begun)

    def stubborn_sync(ctx: SyncContext) -> int:
        begun.append(1)
        with contextlib.suppress(BaseException):
            ctx.sleep(0.3)
        with contextlib.suppress(BaseException):
            ctx.wait("never", timeout=0.3)
        return len(begun)

    handler: Any = stubborn if kind == "async" else stubborn_sync
    task = shop.task("work.stubborn")(handler)
    async with shop.working():
        row = await shop.ended(await task.aenqueue())
    assert row["result"] == 3


async def test_a_signal_of_a_rolled_back_transaction_is_never_seen(shop: Workshop) -> None:
    @shop.task("work.approve")
    async def approve(ctx: Context) -> str:
        return str(await ctx.wait("decision", str))

    async with shop.working():
        handle = await approve.aenqueue()
        await shop.becomes(handle, "suspended")
        with shop.db.connect(autocommit=False) as tx:
            await asyncio.to_thread(handle.signal, "decision", "no", tx=tx)
            tx.rollback()
            assert await asyncio.to_thread(handle.signal, "decision", "yes", tx=tx) == "kept"
        row = await shop.ended(handle)
    assert row["result"] == "yes"


async def test_a_result_that_no_longer_fits_is_neither_run_again_nor_lost(shop: Workshop) -> None:
    done: list[int] = []
    shapes: list[Any] = [str, int, str]

    def work() -> Any:
        done.append(1)
        return "text"

    @shop.task("work.shape", retry=Linear(step=0.01))
    def run(ctx: SyncContext) -> str:
        work.__annotations__["return"] = shapes[min(ctx.attempt - 1, 2)]
        found = ctx.step(work)
        if ctx.attempt == 1:
            raise ValueError("deploy")
        return str(found)

    async with shop.working():
        handle = await run.aenqueue()
        row = await shop.ended(handle)
        errors = await shop.errors(handle)
    assert (row["result"], done) == ("text", [1])
    assert "does not fit" in errors[1]["message"]


async def test_a_run_has_a_limit_of_steps_and_fails_before_the_one_too_many(shop: Workshop) -> None:
    shop.conn.execute("update queues.setting set value = 3 where name = 'max_steps'")
    done: list[int] = []

    async def work(n: int) -> None:
        done.append(n)

    @shop.task("work.endless")
    async def endless(ctx: Context) -> None:
        for n in range(10):
            await ctx.step(work, n)

    async with shop.working():
        row = await shop.ended(await endless.aenqueue())
    assert (row["status"], row["error"]["kind"], done) == ("failed", "run_too_long", [0, 1, 2])


async def test_a_lambda_is_refused_with_advice(shop: Workshop) -> None:
    @shop.task("work.lambda", retry=NoRetry())
    async def run(ctx: Context) -> None:
        await ctx.step(lambda: 1)

    async with shop.working():
        row = await shop.ended(await run.aenqueue())
    assert "use def" in row["last_error"].lower()


async def test_lazy_steps_are_on_disk_before_a_step_that_is_not(shop: Workshop) -> None:
    async def count(n: int) -> int:
        del n
        found = shop.conn.execute("select count(*) from queues.step").fetchone()
        assert found
        return int(found[0])

    @shop.task("work.lazy")
    async def lazy(ctx: Context) -> int:
        for n in range(5):
            await ctx.step(count, n, lazy=True)
        return int(await ctx.step(count, 5))

    async with shop.working():
        row = await shop.ended(await lazy.aenqueue())
    assert row["result"] == 5


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_signal_of_another_type_can_be_caught_and_is_the_same_in_every_attempt(
    shop: Workshop, kind: str
) -> None:
    caught: list[str] = []

    @shop.task("work.async", retry=NoRetry())
    async def decide(ctx: Context) -> int:
        while True:
            try:
                return int(await ctx.wait("decision", int))
            except StepResultMismatch as error:
                caught.append(str(error))

    @shop.task("work.sync", retry=NoRetry())
    def decide_sync(ctx: SyncContext) -> int:
        while True:
            try:
                return int(ctx.wait("decision", int))
            except StepResultMismatch as error:
                caught.append(str(error))

    async with shop.working():
        handle = await (decide if kind == "async" else decide_sync).aenqueue()
        await asyncio.to_thread(handle.signal, "decision", "garbage")
        await shop.until("select from queues.step where task_id = %s", handle.task_id)
        await shop.becomes(handle, "suspended")
        await asyncio.to_thread(handle.signal, "decision", 7)
        row = await shop.ended(handle)
    assert (row["result"], row["attempt"]) == (7, 1)
    assert len(caught) == 2
    assert caught[0] == caught[1]
    assert "the signal that decision has taken does not fit" in caught[0]


UNSTORABLE: dict[str, Any] = {
    "large": ["é" * 300_000, "é" * 300_000],
    "many": [1] * 400_000,  # with the spaces that PostgreSQL writes
    "deep": json.loads("[" * 70 + "]" * 70),
    "number": 10**310,
    "digits": [1e300] * 5000,  # 301 of each, as PostgreSQL writes it
    "huge": "x" * 20_000_000,
    "nan": [1.0, float("nan")],
}


@pytest.mark.parametrize("what", UNSTORABLE)
async def test_a_result_that_cannot_be_stored_is_an_error_in_the_first_attempt_too(
    shop: Workshop, what: str
) -> None:
    shop.conn.execute("create table written (n integer)")
    seen: list[str] = []

    async def give() -> Any:
        return UNSTORABLE[what]

    async def write(db: Any) -> Any:
        await db.execute("insert into written values (1)")
        return UNSTORABLE[what]

    @shop.task("work.give")
    async def run(ctx: Context) -> int:
        try:
            await ctx.step(give)
        except StepFailed as error:
            seen.append(str(error))
        try:
            await ctx.step_in_transaction(write)
        except InvalidStep as error:
            seen.append(str(error))
        return len(seen)

    async with shop.working():
        row = await shop.ended(await run.aenqueue())
    assert row["result"] == 2, seen
    assert "the step give failed" in seen[0]
    assert "the transaction write was rolled back: " in seen[1]
    assert shop.conn.execute("select count(*) from written").fetchone() == (0,)


async def test_a_float_that_is_not_finite_is_remembered_where_a_float_is_annotated(shop: Workshop) -> None:
    def worst() -> list[float]:
        return [float("-inf"), 1.5]

    @shop.task("work.worst")
    async def run(ctx: Context) -> bool:
        found = await ctx.step(worst)
        await ctx.sleep(0.1)
        return bool(found == [float("-inf"), 1.5])

    async with shop.working():
        row = await shop.ended(await run.aenqueue())
    assert row["result"] is True


async def test_a_signal_that_json_cannot_represent_is_refused_to_its_sender(shop: Workshop) -> None:
    @shop.task("work.wait")
    async def wait(ctx: Context) -> Any:
        return await ctx.wait("go")

    async with shop.working():
        handle = await wait.aenqueue()
        for payload in (float("nan"), object(), json.loads("[" * 70 + "]" * 70), 10**400, "x" * 2_000_000):
            with pytest.raises(InvalidArgument):
                await handle.asignal("go", payload)
        await handle.asignal("go", 1)
        assert (await shop.ended(handle))["result"] == 1


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_block_that_was_recorded_and_does_not_use_its_connection_is_an_error(
    shop: Workshop, kind: str
) -> None:
    ran: list[int] = []

    def fail_once() -> None:
        if len(ran) == 1:
            raise ConnectionError("after the block")

    @shop.task("work.async", max_attempts=2, retry=Linear(step=0.01))
    async def book(ctx: Context) -> None:
        async with ctx.step_transaction("book"):
            ran.append(1)
        fail_once()

    @shop.task("work.sync", max_attempts=2, retry=Linear(step=0.01))
    def book_sync(ctx: SyncContext) -> None:
        with ctx.step_transaction("book"):
            ran.append(1)
        fail_once()

    async with shop.working():
        row = await shop.ended(await shop.app.tasks[f"work.{kind}"].aenqueue())
    assert row["status"] == "dead_letter"
    assert "ctx.step_transaction('book') was committed before" in row["last_error"]
    assert len(ran) == 2
