"""What drain runs, in which order, and what it tells."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from holdfast import App, Cancel, Context, Exponential, Fail, Linear, NoRetry, Snooze
from holdfast.engine import Engine, enqueue, leases, queues, tasks
from holdfast.engine.enqueue import NewTask
from holdfast.errors import InvalidArgument
from holdfast.testing import DrainLimitReached, Sandbox

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


@dataclass
class Receipt:
    amount: Decimal
    at: datetime


def test_an_attempt_is_told_with_its_arguments_and_its_typed_result(holdfast: Sandbox, app: App) -> None:
    @app.task("billing.charge")
    def charge(amount: Decimal) -> Receipt:
        return Receipt(amount, NOON)

    handle = charge.enqueue(amount=Decimal("9.50"))
    [ran] = holdfast.drain()
    assert (ran.task_id, ran.type, ran.arguments) == (handle.task_id, "billing.charge", {"amount": "9.50"})
    assert (ran.attempt, ran.status, ran.result) == (1, "succeeded", Receipt(Decimal("9.50"), NOON))
    assert (ran.error, ran.exception, ran.run_at) == (None, None, None)
    assert handle.result(timeout=5) == ran.result


def test_tasks_run_in_the_order_of_a_claim(holdfast: Sandbox, app: App) -> None:
    @app.task("any.thing")
    def thing(n: int) -> int:
        return n

    holdfast.clock.set(NOON)
    thing.enqueue(n=3)
    thing.enqueue(n=4)
    thing.using(run_at=NOON - timedelta(hours=1)).enqueue(n=2)
    thing.using(priority=5).enqueue(n=1)
    assert [ran.result for ran in holdfast.drain()] == [1, 2, 3, 4]


def test_schedules_fire_while_the_clock_is_moved(holdfast: Sandbox, app: App) -> None:
    times: list[datetime] = []

    @app.schedule(cron="0 3 * * *", tz="UTC")
    @app.task("report.nightly")
    def nightly() -> None:
        times.append(holdfast.clock.now())

    holdfast.clock.set(NOON)
    assert holdfast.drain() == []
    ran = holdfast.drain(until=timedelta(days=3))
    assert [one.type for one in ran] == ["report.nightly"] * 3
    assert times == [NOON + timedelta(hours=15, days=n) for n in range(3)]
    assert holdfast.clock.now() == NOON + timedelta(days=3)


async def test_schedules_fire_in_a_running_loop(holdfast: Sandbox, app: App) -> None:
    @app.schedule(every=timedelta(hours=1))
    @app.task("report.hourly")
    async def hourly() -> None: ...

    holdfast.clock.set(NOON)
    ran = await holdfast.adrain(app, until=timedelta(hours=5))
    assert [one.status for one in ran] == ["succeeded"] * 5


def test_what_a_handler_enqueues_is_run_too(holdfast: Sandbox, app: App) -> None:
    @app.task("any.count_down")
    def count_down(n: int) -> int:
        if n:
            count_down.enqueue(n=n - 1)
        return n

    count_down.enqueue(n=3)
    assert [ran.result for ran in holdfast.drain()] == [3, 2, 1, 0]


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


def test_a_retry_runs_when_it_is_due(holdfast: Sandbox, app: App) -> None:
    @app.task("any.flaky", retry=Linear(step=60, jitter=0))
    def flaky(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ConnectionError("the line is busy")
        return "through"

    holdfast.clock.set(NOON)
    flaky.enqueue()
    [first] = holdfast.drain()
    assert (first.status, first.run_at) == ("retrying", NOON + timedelta(minutes=1))
    assert first.error == "ConnectionError: the line is busy"
    assert isinstance(first.exception, ConnectionError)
    holdfast.clock.advance(seconds=59)
    assert holdfast.drain() == []
    holdfast.clock.advance(seconds=1)
    [second] = holdfast.drain()
    assert (second.attempt, second.status, second.error) == (2, "succeeded", None)


def test_a_retry_without_a_delay_runs_in_the_same_drain(holdfast: Sandbox, app: App) -> None:
    @app.task("any.hopeless", max_attempts=3, retry=Linear(step=0))
    def hopeless() -> None:
        raise ConnectionError

    hopeless.enqueue()
    statuses = [ran.status for ran in holdfast.drain()]
    assert statuses == ["retrying", "retrying", "dead_letter"]


def test_the_delay_of_a_retry_is_the_same_in_every_run(holdfast: Sandbox, app: App) -> None:
    @app.task("any.flaky", retry=Exponential(base=100))
    def flaky() -> None:
        raise ConnectionError

    holdfast.clock.set(NOON)
    flaky.enqueue_many([{}, {}])
    first, second = holdfast.drain()
    assert first.run_at == second.run_at


@pytest.mark.parametrize(
    ("outcome", "status", "error"),
    [
        (Fail("the card is blocked"), "failed", "the card is blocked"),
        (Cancel("nobody needs it"), "cancelled", "nobody needs it"),
        (Snooze(60), "snoozed", None),
    ],
)
def test_an_outcome_is_told(
    holdfast: Sandbox, app: App, outcome: Fail | Cancel | Snooze, status: str, error: str | None
) -> None:
    @app.task("any.decide")
    def decide() -> Any:
        return outcome

    holdfast.clock.set(NOON)
    decide.enqueue()
    [ran] = holdfast.drain()
    assert (ran.status, ran.error) == (status, error)
    assert ran.run_at == (NOON + timedelta(minutes=1) if status == "snoozed" else None)


def test_a_snooze_of_a_minute_is_over_after_a_minute(holdfast: Sandbox, app: App) -> None:
    looks: list[datetime] = []

    @app.task("any.poll")
    def poll() -> Snooze:
        looks.append(holdfast.clock.now())
        return Snooze(60)

    holdfast.clock.set(NOON)
    poll.enqueue()
    for _ in range(3):
        holdfast.drain()
        holdfast.clock.advance(minutes=1)
    assert looks == [NOON + timedelta(minutes=n) for n in range(3)]


def test_the_clock_stands_still_while_tasks_run_and_goes_on_afterwards(holdfast: Sandbox, app: App) -> None:
    seen: list[datetime] = []

    @app.task("any.look")
    def look() -> None:
        seen.append(holdfast.clock.now())

    look.enqueue_many([{}, {}])
    before = holdfast.clock.now()
    holdfast.drain()
    assert before < seen[0] == seen[1]
    assert seen[1] < holdfast.clock.now() < before + timedelta(minutes=1)


def test_until_moves_the_clock_from_one_due_task_to_the_next(holdfast: Sandbox, app: App) -> None:
    looks: list[datetime] = []

    @app.task("any.poll")
    def poll() -> Snooze:
        looks.append(holdfast.clock.now())
        return Snooze(3600)

    holdfast.clock.set(NOON)
    poll.using(delay=600).enqueue()
    assert len(holdfast.drain(until=timedelta(hours=3))) == 3
    assert looks == [NOON + timedelta(minutes=m) for m in (10, 70, 130)]
    assert holdfast.clock.now() == NOON + timedelta(hours=3)


def test_until_a_moment_that_is_over_does_not_turn_the_clock_back(holdfast: Sandbox, app: App) -> None:
    holdfast.clock.set(NOON)
    assert holdfast.drain(until=NOON - timedelta(days=1)) == []
    assert holdfast.clock.now() == NOON


def test_after_until_a_clock_that_went_on_goes_on(holdfast: Sandbox, app: App) -> None:
    before = holdfast.clock.now()
    holdfast.drain(until=timedelta(days=1))
    after = holdfast.clock.now()
    assert before + timedelta(days=1) < after < before + timedelta(days=1, minutes=1)
    assert holdfast.clock.now() > after


def test_a_task_that_never_ends_is_an_error_that_names_it(holdfast: Sandbox, app: App) -> None:
    @app.task("any.poll")
    def poll() -> Snooze:
        return Snooze(0)

    handle = poll.enqueue()
    with pytest.raises(DrainLimitReached, match=r"10 attempts, 10 of any\.poll, the last one snoozed"):
        holdfast.drain(limit=10)
    assert (holdfast.task(handle).status, holdfast.task(handle).attempt) == ("pending", 0)


def test_a_limit_that_is_just_enough_is_no_error(holdfast: Sandbox, app: App) -> None:
    @app.task("any.thing")
    def thing() -> None: ...

    thing.enqueue_many([{}, {}, {}])
    assert len(holdfast.drain(limit=3)) == 3


def test_a_limit_below_one_is_refused(holdfast: Sandbox, app: App) -> None:
    with pytest.raises(InvalidArgument, match="limit is 0"):
        holdfast.drain(limit=0)


def test_a_task_without_a_handler_fails_as_in_a_worker(holdfast: Sandbox, app: App) -> None:
    Engine(holdfast.connect()).run(enqueue.enqueue(NewTask("any.unknown")))
    [ran] = holdfast.drain()
    assert ran.status == "failed"
    assert "no_handler_registered" in str(ran.error)


def test_with_an_app_only_its_own_tasks_run(holdfast: Sandbox) -> None:
    mail, billing = App(), App()
    mail.task("mail.send")(lambda: "sent")
    billing.task("mail.send_invoice")(lambda: "billed")
    engine = Engine(holdfast.connect())
    for task_type in ("mail.send_invoice", "mail.send", "other.thing"):
        engine.run(enqueue.enqueue(NewTask(task_type)))
    assert [ran.result for ran in holdfast.drain(mail)] == ["sent"]
    left = holdfast.enqueued()
    assert [(task.type, task.attempt) for task in left] == [("mail.send_invoice", 0), ("other.thing", 0)]
    assert [ran.result for ran in holdfast.drain(billing)] == ["billed"]


def test_without_an_app_the_handlers_of_all_in_use_run(holdfast: Sandbox) -> None:
    mail, billing = holdfast.use(App()), holdfast.use(App())
    mail.task("mail.send")(lambda: "sent")
    billing.task("billing.charge")(lambda: "charged")
    engine = Engine(holdfast.connect())
    for task_type in ("billing.charge", "mail.send"):
        engine.run(enqueue.enqueue(NewTask(task_type)))
    assert [ran.result for ran in holdfast.drain()] == ["charged", "sent"]


def test_without_any_app_it_says_what_to_do(holdfast: Sandbox) -> None:
    with pytest.raises(InvalidArgument, match=r"Call use\(app\) first"):
        holdfast.drain()


def test_what_a_handler_writes_in_its_transaction_is_committed_with_the_outcome(
    holdfast: Sandbox, app: App
) -> None:
    connection = holdfast.connect()
    connection.execute("create table public.ledger (amount integer)")

    @app.task("billing.book", max_attempts=2, retry=Linear(step=0))
    def book(ctx: Context, amount: int) -> None:
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
    def long(ctx: Context) -> None:
        steps.append("before")
        ctx.check()
        handle.cancel("changed our mind")
        assert ctx.cancelled()
        ctx.check()
        steps.append("after")

    handle = long.enqueue()
    [ran] = holdfast.drain()
    assert steps == ["before"]
    assert (ran.status, ran.error) == ("cancelled", "changed our mind")


def test_a_task_that_is_deleted_while_it_runs_is_told_as_deleted(holdfast: Sandbox, app: App) -> None:
    engine = Engine(holdfast.connect())

    @app.task("any.long")
    def long(ctx: Context) -> None:
        engine.run(tasks.delete_task(ctx.task_id))
        ctx.check()

    long.enqueue()
    assert [ran.status for ran in holdfast.drain()] == ["deleted"]


def test_progress_can_be_seen_at_once(holdfast: Sandbox, app: App) -> None:
    seen: list[Any] = []

    @app.task("any.long")
    def long(ctx: Context) -> None:
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


def test_a_payload_that_does_not_fit_fails_its_task(holdfast: Sandbox, app: App) -> None:
    @app.task("any.typed")
    def typed(n: int) -> None: ...

    Engine(holdfast.connect()).run(enqueue.enqueue(NewTask("any.typed", {"n": "many"})))
    [ran] = holdfast.drain()
    assert ran.status == "failed"
    assert "n: " in str(ran.error)


def test_a_result_of_another_type_than_announced_is_told_as_json_has_it(holdfast: Sandbox, app: App) -> None:
    @app.task("any.liar")
    def liar() -> int:
        return "seven"  # type: ignore[return-value] # that is the point

    liar.enqueue()
    assert [ran.result for ran in holdfast.drain()] == ["seven"]


def test_a_lease_that_ended_is_swept_first(holdfast: Sandbox, app: App) -> None:
    @app.task("any.thing")
    def thing(ctx: Context) -> int:
        return ctx.attempt

    thing.enqueue()
    Engine(holdfast.connect()).run(leases.claim("a worker that dies", queues=["any"]))
    assert holdfast.drain() == []
    holdfast.clock.advance(minutes=1)
    assert [ran.result for ran in holdfast.drain()] == [2]


def test_a_paused_queue_rests(holdfast: Sandbox, app: App) -> None:
    @app.task("any.thing")
    def thing() -> None: ...

    thing.enqueue()
    Engine(holdfast.connect()).run(queues.pause("any"))
    assert holdfast.drain(until=timedelta(days=1)) == []


def test_a_task_that_somebody_else_has_locked_is_left_alone(holdfast: Sandbox, app: App) -> None:
    @app.task("any.thing")
    def thing() -> None: ...

    handle = thing.enqueue()
    other = holdfast.connect(autocommit=False)
    Engine(other).run(tasks.cancel(handle.task_id))
    assert holdfast.drain(until=timedelta(hours=1)) == []
    other.rollback()
    assert [ran.status for ran in holdfast.drain()] == ["succeeded"]


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


def test_nothing_is_printed(holdfast: Sandbox, app: App, capfd: pytest.CaptureFixture[str]) -> None:
    @app.task("any.flaky", retry=NoRetry())
    def flaky() -> None:
        raise ConnectionError

    flaky.enqueue()
    holdfast.drain()
    assert capfd.readouterr() == ("", "")


def test_it_acts_with_the_rights_of_a_worker(holdfast: Sandbox) -> None:
    role = holdfast._worker.connection.execute("select current_user::text").fetchone()
    assert role == ("holdfast_worker",)
