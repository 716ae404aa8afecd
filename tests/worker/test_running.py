"""Whatever a handler does, its task ends as it should, and the worker goes on."""

import asyncio
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import App, Cancel, Context, Fail, Linear, NoRetry, Retry, Snooze
from holdfast._worker.attempts import ThreadPool
from holdfast._worker.heartbeat import Heartbeat
from holdfast._worker.jobs import Job
from holdfast._worker.worker import Worker
from holdfast.errors import ResultError
from support.health import line
from support.leases import claimed
from support.outbox import subscribe
from support.workshop import Workshop

NOTHING_ELSE = "work.nothing_else"


@pytest.fixture(autouse=True)
def nothing_else(shop: Workshop) -> None:
    @shop.task(NOTHING_ELSE)
    async def nothing() -> None:
        pass


async def test_an_async_handler_is_given_its_arguments_and_its_result_is_kept(shop: Workshop) -> None:
    @shop.task("work.add")
    async def add(a: int, b: int) -> int:
        return a + b

    async with shop.working():
        row = await shop.ended(await add.aenqueue(a=2, b=3))
    assert (row["status"], row["result"], row["attempt"]) == ("succeeded", 5, 1)


async def test_a_handler_that_is_not_async_runs_in_a_thread(shop: Workshop) -> None:
    @shop.task("work.where")
    def where() -> str:
        return threading.current_thread().name

    async with shop.working():
        row = await shop.ended(await where.aenqueue())
    assert row["result"] == "holdfast-handler"


async def test_threads_end_with_their_worker_also_if_they_were_at_work() -> None:
    threads, gate, begun = ThreadPool(), threading.Event(), threading.Event()
    found: list[threading.Thread] = []

    def work() -> None:
        found.append(threading.current_thread())
        begun.set()
        gate.wait()

    threads.submit(work)
    begun.wait()
    threads.close()
    gate.set()
    await asyncio.to_thread(found[0].join, 60)
    assert not found[0].is_alive()


async def test_the_watchdog_goes_on_although_something_that_it_does_fails(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    @shop.task("work.spin", timeout=0.05, max_attempts=1)
    def spin() -> None:
        while True:
            pass

    def fail(_: Heartbeat) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(Heartbeat, "check_deadline", fail)
    async with shop.working():
        await shop.logged("watchdog_failed")
        row = await shop.ended(await spin.aenqueue())
    assert row["error"]["kind"] == "timeout"


async def test_threads_are_used_again(shop: Workshop) -> None:
    @shop.task("work.who")
    def who() -> int:
        return threading.get_ident()

    async with shop.working(worker_concurrency=1):
        idents = {(await shop.ended(await who.aenqueue()))["result"] for _ in range(5)}
    assert len(idents) == 1


@pytest.mark.parametrize(
    "raised",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), ValueError("no")],
)
@pytest.mark.parametrize("kind", ["async", "sync", "behind middleware"])
async def test_whatever_is_raised_ends_the_attempt_and_nothing_else(
    shop: Workshop, raised: BaseException, kind: str
) -> None:
    async def fails() -> None:
        raise raised

    def fails_here() -> None:
        raise raised

    task = shop.task("work.fail", retry=NoRetry())(fails if kind == "async" else fails_here)
    if kind == "behind middleware":
        shop.app.middleware(_pass_on)
    async with shop.working():
        row = await shop.ended(await task.aenqueue())
        await shop.ended(await shop.app.tasks[NOTHING_ELSE].aenqueue())
    assert row["status"] == "failed"
    assert type(raised).__name__ in row["last_error"]


async def test_an_exception_leads_to_another_attempt(shop: Workshop) -> None:
    @shop.task("work.second", retry=Linear(step=0.01))
    async def second(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise RuntimeError("not yet")
        return ctx.attempt

    async with shop.working():
        handle = await second.aenqueue()
        row = await shop.ended(handle)
        (error,) = await shop.errors(handle)
    assert (row["status"], row["result"]) == ("succeeded", 2)
    assert (error["kind"], error["message"]) == ("handler_error", "RuntimeError: not yet")
    assert "in second" in error["detail"]["traceback"]


@pytest.mark.parametrize(
    "given", [float("nan"), "soon", -5.0, float("inf"), ZeroDivisionError(), SystemExit()]
)
async def test_a_retry_policy_that_makes_no_sense_does_not_keep_the_attempt_from_ending(
    shop: Workshop, given: Any
) -> None:
    class Odd:
        def delay(self, attempt: int, error: BaseException) -> Any:
            del attempt, error
            if isinstance(given, BaseException):
                raise given
            return given

    @shop.task("work.fail", retry=Odd())
    async def fail() -> None:
        raise RuntimeError("no")

    async with shop.working():
        handle = await fail.aenqueue()  # which may be tried again at once
        await shop.until("select from queues.task_error where task_id = %s", handle.task_id)


async def test_a_snooze_runs_again_later_and_uses_no_attempt(shop: Workshop) -> None:
    seen: list[int] = []

    @shop.task("work.snooze")
    async def snooze(ctx: Context) -> Snooze | None:
        seen.append(ctx.attempt)
        return Snooze(0.01) if len(seen) == 1 else None

    async with shop.working():
        await shop.ended(await snooze.aenqueue())
    assert seen == [1, 1]


async def test_a_snooze_for_ever_is_one_for_decades(shop: Workshop) -> None:
    @shop.task("work.snooze")
    async def snooze() -> Snooze:
        return Snooze(1e300)

    async with shop.working():
        row = await shop.becomes(await snooze.aenqueue(), "scheduled")
    assert row["run_at"] - row["created_at"] > timedelta(days=80 * 365)


@pytest.mark.parametrize("raised", [False, True])
async def test_a_retry_counts_the_attempt_and_comes_after_the_time_it_names(
    shop: Workshop, raised: bool
) -> None:
    async def retry_later(raised: bool) -> Retry:
        outcome = Retry(after=timedelta(minutes=1), reason="the card service is busy")
        if raised:
            raise outcome
        return outcome

    registered = shop.task("work.retry", max_attempts=2, retry=NoRetry())(retry_later)
    async with shop.working(worker_concurrency=1):
        handle = await registered.aenqueue(raised=raised)
        waiting = await shop.becomes(handle, "retrying")
        assert (waiting["attempt"], waiting["last_error"]) == (1, "the card service is busy")
        assert timedelta(seconds=50) < waiting["run_at"] - waiting["updated_at"] < timedelta(seconds=90)
        await handle.areschedule(delay=0)
        row = await shop.ended(handle)
    assert (row["status"], row["attempt"], row["error"]["kind"]) == ("dead_letter", 2, "retried_by_handler")


async def test_outcomes_can_be_raised_and_then_roll_back_the_transaction(shop: Workshop) -> None:
    shop.conn.execute("create table note (text text)")

    @shop.task("work.raise")
    async def end(ctx: Context, how: str) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into note values (%s)", [how])
        raise {"cancel": Cancel("not needed"), "fail": Fail("no such order")}[how]

    async with shop.working():
        cancelled = await shop.ended(await end.aenqueue(how="cancel"))
        failed = await shop.ended(await end.aenqueue(how="fail"))
    assert (cancelled["status"], cancelled["last_error"]) == ("cancelled", "not needed")
    assert (failed["status"], failed["last_error"]) == ("failed", "no such order")
    assert shop.conn.execute("select from note").fetchall() == []


async def test_a_handler_may_say_that_its_task_is_cancelled_or_has_failed(shop: Workshop) -> None:
    @shop.task("work.end")
    async def end(how: str) -> Cancel | Fail:
        return Cancel("not needed") if how == "cancel" else Fail("no such order")

    async with shop.working():
        cancelled = await shop.ended(await end.aenqueue(how="cancel"))
        failed = await shop.ended(await end.aenqueue(how="fail"))
    assert (cancelled["status"], cancelled["last_error"]) == ("cancelled", "not needed")
    assert (failed["status"], failed["last_error"]) == ("failed", "no such order")


async def test_without_a_policy_the_first_retry_waits_two_seconds_and_up_to_half_of_it_by_chance(
    shop: Workshop,
) -> None:
    @shop.task("work.fail")
    async def fail() -> None:
        raise RuntimeError("no")

    async with shop.working():
        row = await shop.becomes(await fail.aenqueue(), "retrying")
    # Reckoned between the two, by the worker's idea of the database's clock.
    begun, told = row["created_at"], datetime.fromisoformat(row["error"]["occurred_at"])
    assert begun + timedelta(seconds=1.9) < row["run_at"] < told + timedelta(seconds=3.1)


async def test_a_task_that_no_worker_has_a_handler_for_waits_for_one(shop: Workshop) -> None:
    shop.conn.execute("select queues.enqueue('work.unknown', max_attempts => 1)")
    async with shop.working():
        row = await shop.until("select * from queues.task_status where status = 'scheduled'")
        assert (row["attempt"], row["error"]) == (0, None)
        assert timedelta(seconds=10) < row["run_at"] - row["created_at"] < timedelta(minutes=1)
        explain = "select code, error from queues.explain(%s)"
        [(code, error)] = shop.conn.execute(explain, [row["task_id"]]).fetchall()
        assert code == "postponed"
        assert "no other live worker has one" in error
        assert line(shop.conn, "no_handler", "work.unknown")["level"] == "amber"


async def test_applications_that_share_a_queue_leave_each_other_their_tasks(shop: Workshop) -> None:
    async def echo(text: str) -> str:
        return text

    others = App(shop.db.dsn)
    shop.task("work.echo")(echo)
    others.task("work.shout")(echo)
    other = Worker(others, shop.db.dsn, shop.settings())
    async with shop.working():
        running = asyncio.create_task(other.run())
        await other.ready.wait()
        tasks = [
            (await task.aenqueue_many([{"text": "x"}] * 6))
            for task in (shop.app.tasks["work.echo"], others.tasks["work.shout"])
        ]
        await shop.ended(*tasks[0], *tasks[1])
        other.stop()
        await running
    others.close()
    found = shop.conn.execute("select distinct status, attempt from queues.task_status").fetchall()
    assert found == [("succeeded", 1)]


async def test_a_task_without_a_handler_fails_after_the_grace_and_is_told_of(shop: Workshop) -> None:
    subscribe(shop.conn, "alerts", "task.no_handler")
    shop.conn.execute("select queues.enqueue('work.unknown')")
    async with shop.working(handler_grace="0s"):
        row = await shop.until("select * from queues.task_status where status = 'failed'")
    assert (row["error"]["kind"], row["attempt"]) == ("no_handler_registered", 1)
    assert "work.unknown" in row["last_error"]
    told = shop.conn.execute("select event_type, task_id from queues.event_status").fetchall()
    assert told == [("task.no_handler", row["task_id"])]


@pytest.mark.parametrize("middleware", [False, True])
async def test_a_payload_that_python_cannot_decode_fails_its_task_only(
    shop: Workshop, middleware: bool
) -> None:
    @shop.task("work.typed")
    async def typed(number: int) -> None:
        pass

    if middleware:
        shop.app.middleware(_pass_on)
    handle = await typed.aenqueue(number=1)
    # RequestRefused when it is enqueued; here it came some other way. More digits than Python reads.
    shop.conn.execute("alter table queues.task disable trigger append_only")
    shop.conn.execute("update queues.task set payload = format('{\"number\": %s}', repeat('9', 5000))::jsonb")
    async with shop.working():
        row = await shop.until(
            "select error, attempt from queues.task_status where task_id = %s and status = 'failed'",
            handle.task_id,
        )
        await shop.ended(await shop.app.tasks[NOTHING_ELSE].aenqueue())
    assert (row["error"]["kind"], row["attempt"]) == ("invalid_payload", 1)


@pytest.mark.parametrize("middleware", [False, True])
async def test_a_payload_that_does_not_fit_fails_at_once(shop: Workshop, middleware: bool) -> None:
    @shop.task("work.typed")
    async def typed(number: int) -> None:
        pass

    if middleware:
        shop.app.middleware(_pass_on)
    shop.conn.execute("""select queues.enqueue('work.typed', '{"number": "many"}')""")
    async with shop.working():
        row = await shop.until("select * from queues.task_status where status = 'failed'")
    assert (row["error"]["kind"], row["attempt"]) == ("invalid_payload", 1)
    assert "number" in row["last_error"]


async def test_a_result_that_json_cannot_hold_fails_the_task(shop: Workshop) -> None:
    @shop.task("work.object")
    async def make() -> Any:
        return object()

    async with shop.working():
        row = await shop.ended(await make.aenqueue())
    assert (row["status"], row["error"]["kind"]) == ("failed", "result_not_serializable")


async def test_a_result_error_of_the_handlers_own_is_an_error_as_any_other(shop: Workshop) -> None:
    @shop.task("work.read")
    async def read() -> None:
        raise ResultError("another task's result does not fit")

    async with shop.working():
        await shop.becomes(await read.aenqueue(), "retrying")


@pytest.mark.parametrize("kind", ["large", "deep", "nul", "surrogate"])
async def test_a_result_that_postgres_cannot_store_is_made_storable(shop: Workshop, kind: str) -> None:
    @shop.task("work.make")
    async def make() -> Any:
        deep: list[Any] = []
        for _ in range(200):
            deep = [deep]
        return {
            "large": "x" * 20_000_000,
            "deep": [deep, deep, deep],
            "nul": "a\0b",
            "surrogate": "a\ud800b",
        }[kind]

    async with shop.working():
        row = await shop.ended(await make.aenqueue())
        await shop.ended(await shop.app.tasks[NOTHING_ELSE].aenqueue())
    assert row["status"] == "succeeded"
    if kind in ("nul", "surrogate"):
        assert row["result"] == "a\ufffdb"


async def test_a_huge_error_is_kept_with_its_beginning_and_its_end(shop: Workshop) -> None:
    @shop.task("work.fail", retry=NoRetry())
    async def fail() -> None:
        raise RuntimeError("begin " + "\N{PILE OF POO}\x01" * 1_000_000 + " end")

    async with shop.working():
        handle = await fail.aenqueue()
        await shop.ended(handle)
        (error,) = await shop.errors(handle)
    assert error["kind"] == "handler_error"
    assert error["message"].startswith("RuntimeError: begin")
    assert error["detail"]["message"].endswith(" end")
    assert len(error["message"]) < 10_000


async def test_an_error_whose_text_cannot_be_had_is_still_told(shop: Workshop) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise SystemExit

    @shop.task("work.fail", retry=NoRetry())
    def fail() -> None:
        raise Silent

    async with shop.working():
        row = await shop.ended(await fail.aenqueue())
    assert "Silent: (its text cannot be read: SystemExit)" in row["last_error"]


async def test_a_handler_may_print_a_lot(shop: Workshop, capfd: pytest.CaptureFixture[str]) -> None:
    @shop.task("work.print")
    def write() -> None:
        for _ in range(200):
            print("x" * 100_000)  # noqa: T201 - what is tested

    async with shop.working():
        row = await shop.ended(await write.aenqueue())
    assert row["status"] == "succeeded"
    assert len(capfd.readouterr().out) == 200 * 100_001


@pytest.mark.parametrize("kind", ["alone", "behind middleware", "in a batch"])
async def test_a_worker_without_threads_left_to_start_postpones_the_task_and_uses_no_attempt(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    gathered: dict[str, Any] = {"batch": 10, "batch_wait": 0.01} if kind == "in a batch" else {}

    @shop.task("work.sync", max_attempts=1, **gathered)  # type: ignore[untyped-decorator] # any options
    def work(given: list[int]) -> None:
        pass

    if kind == "behind middleware":
        shop.app.middleware(_pass_on)

    async with shop.working() as worker:

        def refuse(call: Any) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as broken:
            broken.setattr(worker._parts.runner._attempts._threads, "submit", refuse)
            given: Any = 1 if gathered else [1]
            handle = await work.aenqueue(given)
            row = await shop.becomes(handle, "scheduled")
        assert (row["attempt"], row["error"]) == (0, None)
        assert "can't start new thread" in shop.lines("task_not_started")[0]["why"]
        assert (await shop.ended(handle))["status"] == "succeeded"


async def test_a_task_goes_to_a_worker_that_has_its_executor(shop: Workshop) -> None:
    shop.conn.execute("select queues.enqueue('work.program', executor => 'command', max_attempts => 1)")
    async with shop.working() as without:
        await shop.logged("task_not_started", kind="executor_not_available")
        without._parts.jobs.wanted = lambda: 0  # type: ignore[method-assign]
        commands = {"program": {"types": ["work.program"], "argv": ["echo", '{"success": true}']}}
        async with shop.working(commands=commands):
            row = await shop.until("select * from queues.task_status where status in ('failed', 'succeeded')")
    assert row["attempt"] == 1


async def test_nothing_is_held_when_all_has_ended(shop: Workshop) -> None:
    @shop.task("work.sync")
    def work() -> None:
        pass

    async with shop.working() as worker:
        await shop.ended(*await work.aenqueue_many([{}] * 50))
        await shop.ended(*await shop.app.tasks[NOTHING_ELSE].aenqueue_many([{}] * 50))
        await shop.sees(lambda: worker.metrics.finished["succeeded"] == 100)
        jobs = worker._parts.jobs
        assert (len(jobs.held), len(jobs.slots.waiting), len(jobs.slots.running)) == (0, 0, 0)
        assert not worker._parts.watchdog._watched
        assert worker._parts.settler.unsettled == 0


async def test_the_event_loop_reads_its_connections_between_many_handlers(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._worker.running.STARTS_AT_ONCE", 3)
    turn = 0
    turns: list[int] = []

    def count() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count)

    @shop.task("work.note")
    async def note() -> None:
        if not turns:
            count()
        turns.append(turn)

    handles = await note.aenqueue_many([{}] * 30)
    async with shop.working(worker_concurrency=100):
        await shop.ended(*handles)
    assert max(map(turns.count, turns)) <= 3


async def test_nothing_is_claimed_while_too_many_reports_wait(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    @shop.task("work.note")
    async def note() -> None:
        pass

    monkeypatch.setattr("holdfast._worker.jobs.MAX_UNREPORTED", 10)
    async with shop.working(worker_concurrency=5) as worker:
        handles = await note.aenqueue_many([{}] * 200)
        await shop.ended(*handles)
        await shop.sees(lambda: not worker._parts.jobs.held)
        jobs = worker._parts.jobs
        jobs.held.update(_held(n) for n in range(11))
        assert jobs.wanted() == 0
        jobs.settled(next(iter(jobs.held)), "lost")
        assert jobs.wanted() > 0


def _held(number: int) -> Job:
    return Job(claimed(str(number)), 0.0)


async def _pass_on(call: Any, proceed: Any) -> Any:
    return await proceed()
