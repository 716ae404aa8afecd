"""Steps: what a run did once, it does not do again, wherever its handler runs."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Context, Linear, NoRetry
from holdfast.errors import StepFailed
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
    def fulfil(ctx: Context) -> str:
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
    def approve(ctx: Context) -> str:
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
        async with ctx.transaction("reserve") as db:
            await db.execute("insert into reservation values (1)")
        seat = await ctx.transaction("seat", take_seat, 5)
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
    def reserve(ctx: Context) -> int:
        nonlocal begun
        begun += 1
        with ctx.transaction("reserve") as db:
            db.execute("insert into reservation values (1)")
        seat = ctx.transaction("seat", take_seat, 5)
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
    assert shop.conn.execute("select name, try from queues.step_try").fetchall() == [("charge", 1)]
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


async def test_a_run_goes_on_with_other_arguments_under_its_key_and_handle(shop: Workshop) -> None:
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
        again = await loop.using(key="loop").aenqueue(n=3)
    assert (again.created, (await shop.ended(again))["result"]) == (False, 3)
    assert shop.conn.execute("select count(*) from queues.task").fetchone() == (3,)


async def test_a_handle_leads_through_more_runs_than_calls_can_nest(shop: Workshop) -> None:
    @shop.task("work.loop")
    async def loop(ctx: Context, n: int) -> int:
        return n

    handle = await loop.aenqueue(n=1)
    shop.conn.execute("""
        do $$ declare _task record;
        begin
          for n in 2..1500 loop
            select c.task_id, c.token into _task from queues.claim('w', queues => '{work}') c;
            perform queues.finish('w', jsonb_build_array(jsonb_build_object('task_id', _task.task_id, 'token',
              _task.token, 'status', 'continue', 'payload', jsonb_build_object('n', n))));
          end loop;
        end $$""")
    async with shop.working():
        assert await asyncio.to_thread(handle.result, 60) == 1500


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
    def run(ctx: Context) -> None:
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
