"""Steps: what a run did once, it does not do again, wherever its handler runs."""

import asyncio
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import App, Context, Linear, NoRetry, SyncContext
from holdfast.errors import StepFailed
from holdfast.settings import Settings
from support.workshop import Workshop


class Receipt(BaseModel):
    id: int
    items: list[str]


async def test_an_async_run_repeats_only_what_it_does_not_remember(shop: Workshop) -> None:
    done: list[str] = []

    async def charge(amount: int) -> Receipt:
        done.append("charge")
        return Receipt(id=amount, items=["a"])

    def pack(item: str) -> str:
        done.append("pack")
        if done.count("pack") == 1:
            raise ValueError("no box")
        return f"box of {item}"

    @shop.task("work.fulfil", retry=Linear(step=0.01))
    async def fulfil(ctx: Context) -> str:
        receipt = await ctx.step(charge, 7)
        assert isinstance(receipt, Receipt)
        return str(await ctx.step(pack, receipt.items[0]))

    async with shop.working():
        row = await shop.ended(await fulfil.aenqueue())
    assert (row["status"], row["result"], done) == ("succeeded", "box of a", ["charge", "pack", "pack"])


async def test_a_sync_run_repeats_only_what_it_does_not_remember(shop: Workshop) -> None:
    done: list[str] = []

    def charge(amount: int) -> Receipt:
        done.append("charge")
        return Receipt(id=amount, items=["a"])

    def pack(item: str) -> str:
        done.append("pack")
        if done.count("pack") == 1:
            raise ValueError("no box")
        return f"box of {item}"

    @shop.task("work.fulfil", retry=Linear(step=0.01))
    def fulfil(ctx: SyncContext) -> str:
        receipt = ctx.step(charge, 7)
        assert isinstance(receipt, Receipt)
        return str(ctx.step(pack, receipt.items[0]))

    async with shop.working():
        row = await shop.ended(await fulfil.aenqueue())
    assert (row["status"], row["result"], done) == ("succeeded", "box of a", ["charge", "pack", "pack"])


async def test_a_run_sleeps_without_a_worker_and_goes_on(shop: Workshop) -> None:
    begun = 0

    @shop.task("work.nap")
    async def nap(ctx: Context) -> int:
        nonlocal begun
        begun += 1
        await ctx.sleep(0.3)
        return begun

    async with shop.working():
        handle = await nap.aenqueue()
        await shop.until(
            "select from queues.task_status where task_id = %s and status = 'suspended'", handle.task_id
        )
        row = await shop.ended(handle)
    assert (row["result"], row["attempt"]) == (2, 1)


async def test_a_signal_wakes_an_async_run(shop: Workshop) -> None:
    @shop.task("work.approve")
    async def approve(ctx: Context) -> str:
        decision = await ctx.wait("decision", Receipt, timeout=timedelta(days=2))
        return f"{decision.id} {await ctx.wait('decision', str)}"

    async with shop.working():
        handle = await approve.aenqueue()
        await shop.becomes(handle, "suspended")
        await handle.asignal("decision", Receipt(id=5, items=[]))
        await handle.asignal("decision", "again")
        row = await shop.ended(handle)
    assert row["result"] == "5 again"


async def test_a_signal_wakes_a_sync_run(shop: Workshop) -> None:
    @shop.task("work.approve")
    def approve(ctx: SyncContext) -> str:
        decision = ctx.wait("decision", Receipt, timeout=timedelta(days=2))
        return f"{decision.id} {ctx.wait('decision', str)}"

    async with shop.working():
        handle = await approve.using(key="order-7").aenqueue()
        await shop.becomes(handle, "suspended")
        await approve.asignal("order-7", "decision", Receipt(id=5, items=[]))
        await approve.asignal("order-7", "decision", "again")
        row = await shop.ended(handle)
    assert row["result"] == "5 again"


async def test_a_transaction_with_a_name_happens_once(shop: Workshop) -> None:
    shop.conn.execute("create table reservation (n integer)")
    begun = 0

    @shop.task("work.reserve", retry=Linear(step=0.01))
    async def reserve(ctx: Context) -> int:
        nonlocal begun
        begun += 1
        async with ctx.step_transaction("reserve") as db:
            await db.execute("insert into reservation values (1)")
        seat = await ctx.step_in_transaction(take_seat, 5)
        if begun == 1:
            raise ValueError("once more")
        return int(seat)

    async def take_seat(db: Any, n: int) -> int:
        await db.execute("insert into reservation values (%s)", [n])
        return n + 1

    async with shop.working():
        row = await shop.ended(await reserve.aenqueue())
    assert (row["result"], begun) == (6, 2)
    assert shop.conn.execute("select array_agg(n order by n) from reservation").fetchone() == ([1, 5],)


async def test_a_sync_transaction_with_a_name_happens_once(shop: Workshop) -> None:
    shop.conn.execute("create table reservation (n integer)")
    begun = 0

    @shop.task("work.reserve", retry=Linear(step=0.01))
    def reserve(ctx: SyncContext) -> int:
        nonlocal begun
        begun += 1
        with ctx.step_transaction("reserve") as db:
            db.execute("insert into reservation values (1)")
        seat = ctx.step_in_transaction(take_seat, 5)
        if begun == 1:
            raise ValueError("once more")
        return int(seat)

    def take_seat(db: Any, n: int) -> int:
        db.execute("insert into reservation values (%s)", [n])
        return n + 1

    async with shop.working():
        row = await shop.ended(await reserve.aenqueue())
    assert (row["result"], begun) == (6, 2)
    assert shop.conn.execute("select array_agg(n order by n) from reservation").fetchone() == ([1, 5],)


async def test_gather_of_steps_sleeps_and_waits_suspends_when_only_waiting_is_left(shop: Workshop) -> None:
    done: list[int] = []
    attempts: list[int] = []

    async def label(n: int) -> int:
        await asyncio.sleep(0.1)
        done.append(n)
        return n

    @shop.task("work.many")
    async def many(ctx: Context) -> list[Any]:
        attempts.append(1)
        return list(
            await asyncio.gather(
                *[ctx.step(label, n, key=n) for n in range(50)],
                ctx.sleep(0.2),
                ctx.sleep(0.3, "rest"),
                ctx.wait("decision", str),
            )
        )

    async with shop.working():
        handle = await many.aenqueue()
        await shop.becomes(handle, "suspended")
        assert sorted(done) == list(range(50))
        await handle.asignal("decision", "yes")
        row = await shop.ended(handle)
    assert row["result"] == [*range(50), None, None, "yes"]
    assert sorted(done) == list(range(50))


async def test_an_error_that_the_handler_catches_is_remembered(shop: Workshop) -> None:
    tried: list[int] = []
    attempts: list[int] = []

    async def charge() -> None:
        tried.append(1)
        raise ValueError("declined")

    async def refund() -> str:
        if len(attempts) == 1:
            raise RuntimeError("try again")
        return "refunded"

    @shop.task("work.charge", retry=Linear(step=0.01))
    async def pay(ctx: Context) -> str:
        attempts.append(1)
        try:
            await ctx.step(charge)
        except StepFailed as error:
            return f"{await ctx.step(refund)} {error.is_caused_by(ValueError)}"
        return "paid"

    async with shop.working():
        row = await shop.ended(await pay.aenqueue())
    assert (row["result"], len(tried), len(attempts)) == ("refunded True", 1, 2)


async def test_an_error_that_ends_the_attempt_is_tried_again_by_the_next(shop: Workshop) -> None:
    tried: list[int] = []

    async def charge() -> str:
        tried.append(1)
        if len(tried) < 3:
            raise ValueError("busy")
        return "paid"

    @shop.task("work.charge", retry=Linear(step=0.01))
    async def pay(ctx: Context) -> str:
        return str(await ctx.step(charge))

    async with shop.working():
        row = await shop.ended(await pay.aenqueue())
    assert (row["result"], row["attempt"]) == ("paid", 3)


@pytest.mark.parametrize("step", [0.01, 2.5])
async def test_a_step_is_tried_again_in_memory_or_after_a_suspension(shop: Workshop, step: float) -> None:
    tried: list[int] = []

    async def charge() -> str:
        tried.append(1)
        if len(tried) < 2:
            raise ValueError("busy")
        return "paid"

    @shop.task("work.charge", retry=NoRetry())
    async def pay(ctx: Context) -> str:
        return str(await ctx.step(charge, retries=3, retry=Linear(step=step, jitter=0)))

    async with shop.working():
        handle = await pay.aenqueue()
        row = await shop.ended(handle)
    assert (row["result"], row["attempt"], len(tried)) == ("paid", 1, 2)
    assert shop.conn.execute("select step, step_try from queues.error").fetchall() == [("charge", 1)]
    assert [(one.name, one.tries) for one in await handle.asteps()] == [("charge", 2)]


async def test_two_tasks_that_use_one_name_at_once_are_refused(shop: Workshop) -> None:
    async def label() -> None:
        await asyncio.sleep(0)

    @shop.task("work.clash", retry=NoRetry())
    async def clash(ctx: Context) -> None:
        async def sequence() -> None:
            await ctx.step(label)

        await asyncio.gather(sequence(), sequence())

    async with shop.working():
        row = await shop.ended(await clash.aenqueue())
    assert "give each call its own key" in row["last_error"].lower()


async def test_a_run_goes_on_with_other_arguments_as_the_same_task(shop: Workshop) -> None:
    async def work(n: int) -> int:
        return n

    @shop.task("work.loop")
    async def loop(ctx: Context, n: int) -> int:
        await ctx.step(work, n)
        if n < 3:
            ctx.continue_as(n=n + 1)
        return n

    async with shop.working():
        handle = await loop.using(key="loop").aenqueue(n=1)
        assert await asyncio.to_thread(handle.result, 30) == 3
        again = await loop.using(key="loop").aenqueue(n=1)
    assert (again.task_id, again.created) == (handle.task_id, False)
    assert (await handle.ainfo()).generation == 3
    assert [step.result for step in await handle.asteps()] == [3]
    assert shop.conn.execute("select count(*) from queues.task").fetchone() == (1,)


async def test_a_handle_cancels_a_run_in_whichever_generation(shop: Workshop) -> None:
    @shop.task("work.loop")
    async def loop(ctx: Context, n: int) -> None:
        if n < 3:
            ctx.continue_as(n=n + 1)
        await ctx.wait("never")

    async with shop.working():
        handle = await loop.aenqueue(n=1)
        await shop.until("select from queues.task_status where status = 'suspended'")
        assert await handle.astatus() == "suspended"
        assert await handle.acancel("not needed") == "cancelled"
    assert shop.conn.execute("select status from queues.task_status").fetchall() == [("cancelled",)]


async def test_a_run_that_is_older_than_a_change_keeps_its_way(shop: Workshop) -> None:
    async def survey() -> str:
        return "asked"

    @shop.task("work.changed")
    async def changed(ctx: Context) -> str:
        if ctx.since("2026-11 survey"):
            return str(await ctx.step(survey))
        return "as before"

    old = await changed.aenqueue()
    async with shop.working():
        new = await changed.aenqueue()
        assert (await shop.ended(old))["result"] == "as before"
        assert (await shop.ended(new))["result"] == "asked"


CHANGE = "2026-12"


class Changes:
    SURVEY = "2026-12 of a class"


def _asks(ctx: Context | SyncContext) -> bool:
    return ctx.since("2026-12 of a helper")


def _note() -> None: ...


def _handlers(shop: Workshop) -> list[Any]:
    """Handlers that ask for a name which is not text in their own code, in every place."""

    @shop.task("work.constant")
    async def constant(ctx: Context) -> bool:
        return ctx.since(CHANGE)

    @shop.task("work.late")
    async def late(ctx: Context) -> bool:
        await ctx.step(_note)
        return ctx.since(name=Changes.SURVEY) and _asks(ctx)

    @shop.task("work.plain")
    def plain(ctx: SyncContext) -> bool:
        return ctx.since(Changes.SURVEY) and _asks(ctx)

    @shop.task("work.plain_late")
    def plain_late(ctx: SyncContext) -> bool:
        ctx.step(_note)
        return ctx.since(CHANGE) and _asks(ctx)

    return [constant, late, plain, plain_late]


async def test_a_change_may_have_a_name_that_the_code_computes(shop: Workshop) -> None:
    handlers = _handlers(shop)
    old = [await task.aenqueue() for task in handlers]
    async with shop.working():
        new = [await task.aenqueue() for task in handlers]
        assert [(await shop.ended(one))["result"] for one in new] == [True] * 4
        assert [(await shop.ended(one))["result"] for one in old] == [False] * 4
    async with shop.working():  # another worker, to which the names are known
        again = [await task.aenqueue() for task in handlers]
        assert [(await shop.ended(one))["result"] for one in again] == [True] * 4


async def test_a_change_that_is_asked_for_too_early_is_an_error(shop: Workshop) -> None:
    @shop.task("work.early", retry=NoRetry())
    async def early(ctx: Context) -> bool:
        return _asks(ctx)

    async with shop.working():
        handle = await early.aenqueue()
        await shop.ended(handle)
        [error] = await shop.errors(handle)
    assert "ctx.since is asked in another function before the first step" in error["message"]


async def test_a_change_counts_from_the_first_worker_with_the_code_not_from_the_one_that_asks(
    shop: Workshop,
) -> None:
    handlers = _handlers(shop)
    async with shop.working():
        """It asks nothing."""
    enqueued = [await task.aenqueue() for task in handlers]
    async with shop.working():
        assert [(await shop.ended(one))["result"] for one in enqueued] == [True] * 4


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_change_whose_name_no_worker_finds_in_the_code_is_an_error(shop: Workshop, kind: str) -> None:
    async def computed(ctx: Context) -> bool:
        return ctx.since(f"change {ctx.attempt}")

    def computed_sync(ctx: SyncContext) -> bool:
        return ctx.since(f"change {ctx.attempt}")

    handler: Any = computed if kind == "async" else computed_sync
    task = shop.task("work.computed", retry=NoRetry())(handler)
    async with shop.working():
        handle = await task.aenqueue()
        row = await shop.ended(handle)
    assert row["status"] == "failed"
    assert "ctx.since('change 1'): no worker has found this name in the code" in row["last_error"]


async def test_a_step_that_returns_another_type_than_annotated_fails(shop: Workshop) -> None:
    def count() -> int:
        return "many"  # type: ignore[return-value]

    @shop.task("work.count", retry=NoRetry())
    async def counted(ctx: Context) -> str:
        try:
            return str(await ctx.step(count))
        except StepFailed as error:
            return str(error)

    async with shop.working():
        row = await shop.ended(await counted.aenqueue())
    assert "step count returned a value of type str, and is annotated with int" in row["result"]


async def test_the_steps_of_a_run_do_not_include_a_sleep_that_goes_on(shop: Workshop) -> None:
    @shop.task("work.nap")
    async def nap(ctx: Context) -> None:
        await ctx.sleep(0, "a")
        await ctx.sleep(3600, "b")

    async with shop.working():
        handle = await nap.aenqueue()
        await shop.becomes(handle, "suspended")
        assert [step.name for step in await handle.asteps()] == ["a"]


@pytest.mark.parametrize("whose", ["worker", "app"])
async def test_a_callback_is_signed_with_the_settings_of_the_worker_or_the_app(
    shop: Workshop, whose: str
) -> None:
    given = {"web_secret": "s" * 32, "web_url": "https://shop.example"}
    if whose == "app":
        shop.app = App(shop.db.dsn, settings=Settings.load(**given))

    @shop.app.task("work.ask")
    async def ask(ctx: Context) -> str:
        return str(await ctx.callback("decision"))

    async with shop.working(**(given if whose == "worker" else {})):
        row = await shop.ended(await ask.aenqueue())
    assert row["result"].startswith("https://shop.example/callbacks/")


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_run_sleeps_until_a_time_of_the_engine(shop: Workshop, is_async: bool) -> None:
    begun: list[datetime] = []

    async def nap(ctx: Context) -> bool:
        begun.append(ctx.now())
        await ctx.sleep_until(begun[0] + timedelta(seconds=0.5))
        await ctx.sleep_until(begun[0] - timedelta(days=1), "past")
        return ctx.now() - begun[0] >= timedelta(seconds=0.5)

    def plain(ctx: SyncContext) -> bool:
        begun.append(ctx.now())
        ctx.sleep_until(begun[0] + timedelta(seconds=0.5))
        ctx.sleep_until(begun[0] - timedelta(days=1), "past")
        return ctx.now() - begun[0] >= timedelta(seconds=0.5)

    handler: Any = nap if is_async else plain
    task = shop.task("work.nap")(handler)
    async with shop.working():
        row = await shop.ended(await task.aenqueue())
    assert (row["result"], len(begun)) == (True, 2)


async def test_a_time_without_a_zone_is_refused(shop: Workshop) -> None:
    @shop.task("work.nap", retry=NoRetry())
    async def nap(ctx: Context) -> None:
        await ctx.sleep_until(datetime(2026, 12, 24))  # noqa: DTZ001 - what is refused

    async with shop.working():
        handle = await nap.aenqueue()
        await shop.ended(handle)
        [error] = await shop.errors(handle)
    assert "ctx.sleep_until takes a datetime with a time zone" in error["message"]


async def test_a_fork_runs_again_from_a_step(shop: Workshop) -> None:
    done: list[str] = []

    async def charge() -> int:
        done.append("charge")
        return 5

    async def pack(n: int) -> int:
        done.append("pack")
        return n + 1

    @shop.task("work.fulfil")
    async def fulfil(ctx: Context) -> int:
        return int(await ctx.step(pack, await ctx.step(charge)))

    async with shop.working():
        handle = await fulfil.aenqueue()
        await shop.ended(handle)
        row = await shop.ended(await handle.afork(before="pack", reason="wrong box"))
    assert (row["result"], done) == (6, ["charge", "pack", "pack"])


async def test_a_step_of_a_sync_run_has_a_time_limit(shop: Workshop) -> None:
    def hang() -> None:
        while True:
            threading.Event().wait(0.01)

    @shop.task("work.hang", retry=NoRetry())
    def run(ctx: SyncContext) -> None:
        ctx.step(hang, timeout=0.1)

    async with shop.working():
        row = await shop.ended(await run.aenqueue())
    assert "took longer than its limit of 0.1 s" in row["last_error"]


async def test_a_wait_without_an_answer_ends_and_remembers_that(shop: Workshop) -> None:
    @shop.task("work.ask")
    async def ask(ctx: Context) -> str:
        try:
            return str(await ctx.wait("decision", timeout=0.2))
        except TimeoutError:
            await ctx.sleep(0.2)
            return "nobody answered"

    async with shop.working():
        handle = await ask.aenqueue()
        row = await shop.ended(handle)
    assert row["result"] == "nobody answered"
    assert [(one.name, one.kind) for one in await handle.asteps()] == [
        ("decision", "signal"),
        ("sleep", "sleep"),
    ]
