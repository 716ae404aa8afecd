"""Runs with steps in tests: forced replays and crashes, given memory, and time that passes at once."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal

import pytest

from holdfast import App, Context, SyncContext
from holdfast.errors import InvalidArgument, StepFailed
from holdfast.testing import ReplayDiffers, Sandbox

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


def test_a_forced_replay_calls_every_step_once_and_the_handler_many_times(
    holdfast: Sandbox, app: App
) -> None:
    done: list[str] = []

    async def charge(what: str) -> str:
        done.append(what)
        return what

    @app.task("work.fulfil")
    async def fulfil(ctx: Context) -> str:
        done.append("begun")
        return "".join([await ctx.step(charge, what) for what in "abc"])

    fulfil.enqueue()
    [ran] = holdfast.drain(replay="always")
    assert (ran.status, ran.result) == ("succeeded", "abc")
    assert done == ["begun", "a", "begun", "b", "begun", "c", "begun", "begun"]


def test_a_forced_replay_works_for_plain_functions_too(holdfast: Sandbox, app: App) -> None:
    done: list[str] = []

    def charge(what: str) -> str:
        done.append(what)
        return what

    @app.task("work.fulfil")
    def fulfil(ctx: SyncContext) -> str:
        done.append("begun")
        return "".join([ctx.step(charge, what) for what in "ab"])

    fulfil.enqueue()
    [ran] = holdfast.drain(replay="always")
    assert (ran.status, ran.result) == ("succeeded", "ab")
    assert done == ["begun", "a", "begun", "b", "begun", "begun"]


def test_a_task_that_is_drained_takes_the_way_of_the_present_code(holdfast: Sandbox, app: App) -> None:
    @app.task("work.changed")
    def changed(ctx: SyncContext) -> bool:
        return ctx.since("2026-11 survey")

    changed.enqueue()
    holdfast.clock.advance(hours=1)
    [ran] = holdfast.drain(replay="always")
    assert ran.result is True


def test_a_forced_replay_does_not_repeat_steps_that_run_at_the_same_time(holdfast: Sandbox, app: App) -> None:
    done: list[int] = []

    async def pack(n: int) -> int:
        await asyncio.sleep(n / 1000)
        done.append(n)
        return n

    @app.task("work.pack")
    async def pack_all(ctx: Context) -> int:
        return sum(await asyncio.gather(*[ctx.step(pack, n, key=n) for n in range(10)]))

    pack_all.enqueue()
    [ran] = holdfast.drain(replay="always")
    assert (ran.result, sorted(done)) == (45, list(range(10)))


def test_a_run_that_goes_on_is_drained_in_each_generation(holdfast: Sandbox, app: App) -> None:
    @app.task("work.loop")
    def loop(ctx: SyncContext, n: int) -> int:
        if n < 3:
            ctx.continue_as(n=n + 1)
        return n

    handle = loop.enqueue(n=1)
    attempts = [(ran.task_id, ran.arguments, ran.status) for ran in holdfast.drain()]

    assert attempts == [
        (handle.task_id, {"n": 1}, "continued"),
        (handle.task_id, {"n": 2}, "continued"),
        (handle.task_id, {"n": 3}, "succeeded"),
    ]
    assert handle.result() == 3


def test_a_run_that_ends_in_another_way_when_it_is_replayed_fails_the_test(
    holdfast: Sandbox, app: App
) -> None:
    numbers = count(1)

    def charge() -> int:
        return 1

    @app.task("work.fulfil")
    def fulfil(ctx: SyncContext) -> int:
        ctx.step(charge)
        return next(numbers)

    fulfil.enqueue()
    with pytest.raises(ReplayDiffers, match=r"work.fulfil returned 2, and 3 when it was replayed"):
        holdfast.drain(replay="always")


def test_a_forced_replay_keeps_transactions_that_were_committed(holdfast: Sandbox, app: App) -> None:
    conn = holdfast.connect()
    conn.execute("create table reservation (order_id integer)")

    @app.task("work.reserve")
    async def reserve(ctx: Context) -> int:
        async with ctx.step_transaction("reserve") as db:
            await db.execute("insert into reservation values (7)")
        return 7

    reserve.enqueue()
    assert [ran.result for ran in holdfast.drain(replay="always")] == [7]
    assert conn.execute("select count(*) from reservation").fetchone() == (1,)


def test_after_a_crash_only_the_step_that_was_not_recorded_runs_again(holdfast: Sandbox, app: App) -> None:
    done: list[str] = []

    async def charge() -> None:
        done.append("charge")

    async def pack() -> None:
        done.append("pack")

    @app.task("work.fulfil")
    async def fulfil(ctx: Context) -> None:
        await ctx.step(charge)
        await ctx.step(pack)

    fulfil.enqueue()
    [ran] = holdfast.drain(crash_after="pack")
    assert (ran.status, done) == ("succeeded", ["charge", "pack", "pack"])


def test_a_crash_after_a_transaction_rolls_it_back(holdfast: Sandbox, app: App) -> None:
    conn = holdfast.connect()
    conn.execute("create table reservation (order_id integer)")
    begun: list[int] = []

    def insert(db: object) -> None:
        begun.append(7)
        db.execute("insert into reservation values (7)")  # type: ignore[attr-defined]

    @app.task("work.reserve")
    def reserve(ctx: SyncContext) -> None:
        ctx.step_in_transaction(insert)

    reserve.enqueue()
    assert [ran.status for ran in holdfast.drain(crash_after="insert")] == ["succeeded"]
    assert begun == [7, 7]
    assert conn.execute("select count(*) from reservation").fetchone() == (1,)


def test_a_crash_after_a_step_that_never_ran_fails_the_test(holdfast: Sandbox, app: App) -> None:
    @app.task("work.fulfil")
    async def fulfil() -> None: ...

    fulfil.enqueue()
    with pytest.raises(AssertionError, match="no attempt has recorded a step 'charge'"):
        holdfast.drain(crash_after="charge")


def test_a_suspended_attempt_shows_what_it_waits_for(holdfast: Sandbox, app: App) -> None:
    holdfast.clock.set(NOON)

    @app.task("work.decide")
    async def decide(ctx: Context) -> str:
        await asyncio.gather(
            ctx.sleep(timedelta(hours=1), "cooling off"), ctx.wait("decision", str, timeout=7200)
        )
        return "over"

    handle = decide.enqueue()
    [ran] = holdfast.drain()
    assert ran.status == "suspended"
    assert [(wait.name, wait.signal) for wait in ran.waits] == [
        ("cooling off", None),
        ("decision", "decision"),
    ]
    assert ran.run_at == ran.waits[0].until
    handle.signal("decision", "yes")
    assert [ran.status for ran in holdfast.drain(until=timedelta(hours=2))] == ["suspended", "succeeded"]


@pytest.mark.parametrize("replay", [None, "always"])
def test_time_travels_through_sleeps_and_timeouts(
    holdfast: Sandbox, app: App, replay: Literal["always"] | None
) -> None:
    holdfast.clock.set(NOON)

    @app.task("work.decide")
    async def decide(ctx: Context) -> str:
        await ctx.sleep(timedelta(days=7))
        try:
            await ctx.wait("decision", str, timeout=timedelta(days=2))
        except TimeoutError:
            return "nobody answered"
        return "answered"

    handle = decide.enqueue()
    *waited, ended = holdfast.drain(until=timedelta(days=10), replay=replay)
    assert ({ran.status for ran in waited}, ended.result) == ({"suspended"}, "nobody answered")
    assert holdfast.task(handle).status == "succeeded"
    assert holdfast.clock.now() == NOON + timedelta(days=10)


def test_a_handler_runs_alone_with_steps_and_signals_that_are_given(holdfast: Sandbox, app: App) -> None:
    done: list[str] = []

    async def charge(amount: int) -> int:
        raise AssertionError("must not run")

    async def pack(receipt: int) -> str:
        done.append(f"pack {receipt}")
        return "packed"

    @app.task("work.fulfil")
    async def fulfil(ctx: Context, amount: int) -> str:
        receipt = await ctx.step(charge, amount)
        await ctx.sleep(timedelta(days=7))
        first = await ctx.wait("decision", str)
        second = await ctx.wait("decision", str)
        return f"{first} {second} {await ctx.step(pack, receipt)}"

    signals = {"decision": ["yes", "no"]}
    result = holdfast.run_task(fulfil, amount=7, steps={"charge": 42}, signals=signals)
    assert (result, done) == ("yes no packed", ["pack 42"])


def test_a_handler_that_runs_alone_sees_failed_steps_and_timeouts(holdfast: Sandbox, app: App) -> None:
    def charge() -> int:
        raise AssertionError("must not run")

    @app.task("work.fulfil")
    def fulfil(ctx: SyncContext) -> str:
        found = ""
        try:
            ctx.step(charge)
        except StepFailed as error:
            found = str(error)
        ctx.sleep(timedelta(days=7))
        try:
            ctx.wait("decision", str)
        except TimeoutError:
            return f"{found}, nobody answered"
        return found

    result = holdfast.run_task(fulfil, steps={"charge": ValueError("no money")})
    assert result == "the step charge failed: ValueError: no money, nobody answered"


def test_time_passes_alone_only_when_all_that_is_left_is_waiting(holdfast: Sandbox, app: App) -> None:
    order: list[str] = []

    async def pack() -> None:
        await asyncio.sleep(0.05)
        order.append("packed")

    @app.task("work.fulfil")
    async def fulfil(ctx: Context) -> None:
        async def later(days: int) -> None:
            await ctx.sleep(timedelta(days=days), f"sleep {days}")
            order.append(f"slept {days}")

        await asyncio.gather(later(2), later(1), ctx.step(pack))

    holdfast.run_task(fulfil)
    assert order == ["packed", "slept 1", "slept 2"]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_wait_and_a_join_are_drawn_from_their_beginning_to_their_end(
    holdfast: Sandbox, app: App, is_async: bool
) -> None:
    @app.task("work.pack")
    def pack(item: int) -> int:
        return item

    @app.task("work.blocking")
    def blocking(ctx: SyncContext) -> None:
        ctx.wait("go")
        ctx.map(pack, [pack.using(delay=3600).build(1)])

    @app.task("work.awaiting")
    async def awaiting(ctx: Context) -> None:
        await ctx.wait("go")
        await ctx.map(pack, [pack.using(delay=3600).build(1)])

    holdfast.clock.set(NOON)
    handle = (awaiting if is_async else blocking).enqueue()
    holdfast.drain()
    holdfast.clock.advance(days=2)
    handle.signal("go")
    holdfast.drain(until=timedelta(days=1))
    lasted = [
        (step.name, round((step.ended_at - step.started_at) / timedelta(hours=1))) for step in handle.steps()
    ]
    assert lasted == [("go", 48), ("pack", 1)]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_alone_takes_the_results_of_its_children(
    holdfast: Sandbox, app: App, is_async: bool
) -> None:
    @app.task("work.pack")
    def pack(item: int) -> timedelta:
        raise AssertionError("must not run")

    def described(found: list[object]) -> list[str]:
        return [str(one) for one in found]

    @app.task("work.blocking")
    def blocking(ctx: SyncContext) -> list[str]:
        ctx.start(pack, 9)
        packed = ctx.map(pack, [1, 2], return_exceptions=True)
        return described([*packed, ctx.first(pack.build(3), name="fast")])

    @app.task("work.awaiting")
    async def awaiting(ctx: Context) -> list[str]:
        await ctx.start(pack, 9)
        packed = await ctx.map(pack, [1, 2], return_exceptions=True)
        return described([*packed, await ctx.first(pack.build(3), name="fast")])

    task = awaiting if is_async else blocking
    steps = {"pack#2": [timedelta(seconds=5), ValueError("torn")], "fast": 7}
    assert holdfast.run_task(task, steps=steps) == ["0:00:05", "torn", "7"]
    with pytest.raises(InvalidArgument, match="pack#2 waits for some"):
        holdfast.run_task(task)


def test_a_handler_alone_sees_the_failures_of_its_children_as_one_group(holdfast: Sandbox, app: App) -> None:
    @app.task("work.pack")
    def pack(item: int) -> str:
        raise AssertionError("must not run")

    @app.task("work.all")
    async def fulfil(ctx: Context) -> str:
        try:
            await ctx.map(pack, [1, 2])
        except ExceptionGroup as group:
            return str(group.exceptions[0])
        return "packed"

    assert holdfast.run_task(fulfil, steps={"pack": ["box", ValueError("torn")]}) == "torn"
    assert holdfast.run_task(fulfil, steps={"pack": ["box", "bag"]}) == "packed"


def test_a_given_step_that_the_handler_never_calls_fails_the_test(holdfast: Sandbox, app: App) -> None:
    @app.task("work.fulfil")
    async def fulfil() -> None: ...

    with pytest.raises(AssertionError, match="has not called these steps: chrage"):
        holdfast.run_task(fulfil, steps={"chrage": 1})


def test_the_mailbox_has_the_messages_that_were_sent_in_their_order(holdfast: Sandbox, app: App) -> None:
    for subject in ("first", "second"):
        holdfast.connect().execute(
            "select comms.keep_message('email', 'ada@example.org', %s, subject => %s)", [subject, subject]
        )
    assert [message.subject for message in holdfast.mailbox()] == ["first", "second"]
    assert holdfast.mailbox("bob@example.org") == []


@pytest.mark.parametrize("is_async", [True, False])
def test_the_time_of_a_handler_is_that_of_the_test(holdfast: Sandbox, app: App, is_async: bool) -> None:
    async def wait(ctx: Context) -> list[str]:
        began = await ctx.step(_began, ctx.now())
        await ctx.sleep_until(began + timedelta(days=30))
        return [began.isoformat(), ctx.now().isoformat()]

    def plain(ctx: SyncContext) -> list[str]:
        began = ctx.step(_began, ctx.now())
        ctx.sleep_until(began + timedelta(days=30))
        return [began.isoformat(), ctx.now().isoformat()]

    handler: Any = wait if is_async else plain
    task = app.task("work.wait")(handler)
    holdfast.clock.set(NOON)
    handle = task.enqueue()
    holdfast.drain(until=timedelta(days=31))
    assert handle.result() == [NOON.isoformat(), (NOON + timedelta(days=30)).isoformat()]


def test_the_time_of_a_handler_alone_passes_with_its_waits(holdfast: Sandbox, app: App) -> None:
    @app.task("work.wait")
    async def wait(ctx: Context) -> bool:
        began = ctx.now()
        await ctx.sleep_until(began + timedelta(days=30))
        return ctx.now() >= began + timedelta(days=30)

    assert holdfast.run_task(wait) is True


def _began(moment: datetime) -> datetime:
    return moment
