"""What a worker claims, how much of it at once, and what it waits for when there is nothing."""

import asyncio
import time
from datetime import timedelta
from random import Random

import pytest

from holdfast._connections.listener import WakeupListener
from holdfast._engine.leases import Rest
from holdfast._worker.claiming import Claimer, Cursor
from holdfast._worker.jobs import Demand, Job
from support.leases import claimed
from support.wire import Wire
from support.workshop import Workshop


async def test_an_idle_worker_is_woken_by_an_enqueue(shop: Workshop) -> None:
    shop.task("work.echo")(_echo)
    async with shop.working(poll_interval="1h"):
        await shop.until("select from queues.worker where idle")
        row = await shop.ended(await shop.app.tasks["work.echo"].aenqueue(text="hello"))
    assert row["result"] == "hello"


async def test_what_is_enqueued_while_a_worker_falls_idle_is_found_without_a_wake_up(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.task("work.echo")(_echo)
    client = shop.db.connect(autocommit=False)
    looked = Claimer.rest

    async def commit_after_the_look(claimer: Claimer, *, holding: bool) -> Rest:
        due = await looked(claimer, holding=holding)
        if shop.conn.execute("select from queues.worker where idle").fetchone() is not None:
            client.commit()
        return due

    monkeypatch.setattr(Claimer, "rest", commit_after_the_look)
    # Before a worker is idle, so that no wake-up is sent.
    handle = shop.app.tasks["work.echo"].using(tx=client).enqueue(text="just so")
    async with shop.working(poll_interval="1h"):
        row = await shop.ended(handle)
    assert row["result"] == "just so"


async def test_a_worker_waits_for_the_next_task_to_be_due(shop: Workshop) -> None:
    shop.task("work.echo")(_echo)
    handle = await shop.app.tasks["work.echo"].using(delay=0.5).aenqueue(text="later")
    async with shop.working(poll_interval="1h"):
        row = await shop.ended(handle)
    assert timedelta(0) <= row["claimed_at"] - row["run_at"] < timedelta(seconds=10)


async def test_a_task_that_is_due_before_an_idle_worker_would_look_starts_on_time(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._worker.claiming.LOOK_AGAIN_SECONDS", 3600)
    shop.task("work.echo")(_echo)
    async with shop.working(poll_interval="1h"):
        await shop.until("select from queues.worker where idle")
        row = await shop.ended(await shop.app.tasks["work.echo"].using(delay=0.5).aenqueue(text="soon"))
    assert row["claimed_at"] - row["run_at"] < timedelta(seconds=10)


async def test_a_worker_that_was_removed_enters_itself_again_when_it_looks(shop: Workshop) -> None:
    async with shop.working(poll_interval="50ms", heartbeat="1h", lease="3h", worker_timeout="1d") as worker:
        await shop.until("select from queues.worker where idle")
        shop.conn.execute("delete from queues.worker")
        row = await shop.until("select worker_id from queues.worker where idle")
    assert row["worker_id"] == worker.worker_id


async def test_an_idle_worker_looks_without_a_claim(shop: Workshop) -> None:
    async with shop.working(poll_interval="20ms") as worker:
        await shop.until("select from queues.worker where idle")
        await shop.logged("leading_started")
        claims = worker.metrics.batches["claim"].count
        before = (await shop.until("select last_heartbeat from queues.worker"))["last_heartbeat"]
        await shop.until("select from queues.worker where last_heartbeat > %s + interval '500 ms'", before)
        assert worker.metrics.batches["claim"].count <= claims + 2


async def test_a_task_in_another_queue_is_left_alone(shop: Workshop) -> None:
    shop.task("work.echo")(_echo)
    other = await shop.app.tasks["work.echo"].using(queue="other").aenqueue(text="not mine")
    async with shop.working():
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue(text="mine"))
    assert await other.astatus() == "pending"


async def test_a_worker_may_serve_types_by_their_prefix(shop: Workshop) -> None:
    shop.task("work.echo")(_echo)
    shop.task("workshop.echo")(_echo)
    mine = await shop.app.tasks["work.echo"].using(queue="anywhere").aenqueue(text="mine")
    other = await shop.app.tasks["workshop.echo"].aenqueue(text="not mine")
    async with shop.working(worker_queues=(), worker_type_prefixes="work."):
        await shop.ended(mine)
    assert await other.astatus() == "pending"


async def test_a_worker_without_subscriptions_serves_the_queues_of_its_application(shop: Workshop) -> None:
    shop.task("work.echo")(_echo)
    shop.task("mail.echo", queue="slow")(_echo)
    async with shop.working(worker_queues=()):
        for task in ("work.echo", "mail.echo"):
            row = await shop.ended(await shop.app.tasks[task].aenqueue(text="x"))
            assert row["status"] == "succeeded"


async def test_a_worker_of_an_application_without_tasks_serves_the_queue_default(shop: Workshop) -> None:
    async with shop.working(worker_queues=()):
        shop.conn.execute("select queues.enqueue('default.unknown')")
        await shop.logged("no_handler_registered", type="default.unknown")


async def test_a_paused_queue_waits_until_it_is_resumed(shop: Workshop) -> None:
    shop.task("work.echo")(_echo)
    shop.conn.execute("select queues.pause('work')")
    handle = await shop.app.tasks["work.echo"].aenqueue(text="x")
    async with shop.working(poll_interval="1h") as worker:
        await shop.sees(lambda: worker.metrics.batches.get("claim"))
        assert await handle.astatus() == "pending"
        shop.conn.execute("select queues.resume('work')")
        await shop.ended(handle)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_tasks_with_keys_and_limits_run_where_the_default_isolation_is_stricter(
    shop: Workshop, isolation: str
) -> None:
    shop.task("work.echo")(_echo)
    echo = shop.app.tasks["work.echo"]
    shop.conn.execute(
        f"alter database {shop.db.name} set default_transaction_isolation = '{isolation}'".encode()
    )
    shop.conn.execute("select queues.set_limit('queue', 'work', max_running => 2)")
    async with shop.working():
        plain = [await echo.aenqueue(text="plain") for _ in range(3)]
        keyed = [await echo.using(concurrency_key="k").aenqueue(text="keyed") for _ in range(3)]
        await shop.ended(*plain, *keyed)


async def test_no_more_tasks_run_at_once_than_allowed(shop: Workshop) -> None:
    running, most, gate = 0, 0, asyncio.Event()

    @shop.task("work.wait")
    async def wait() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    handles = await wait.aenqueue_many([{}] * 12)
    async with shop.working(worker_concurrency=3):
        await shop.sees(lambda: running == 3)
        gate.set()
        await shop.ended(*handles)
    assert most == 3


async def test_tasks_of_higher_priority_start_first(shop: Workshop) -> None:
    started: list[int] = []

    @shop.task("work.note")
    async def note(number: int) -> None:
        started.append(number)

    handles = [await note.using(priority=n).aenqueue(number=n) for n in range(5)]
    async with shop.working(worker_concurrency=1):
        await shop.ended(*handles)
    assert started == [4, 3, 2, 1, 0]


async def test_a_worker_that_was_taken_out_of_the_registry_enters_itself_again(shop: Workshop) -> None:
    shop.task("work.echo")(_echo)
    async with shop.working(poll_interval="1h") as worker:
        await shop.until("select from queues.worker where idle")
        shop.conn.execute("delete from queues.worker")
        await shop.terminate()  # what it said before is forgotten: it says it again
        await shop.logged("registered_again")
        row = await shop.until("select worker_id from queues.worker where idle")
    assert row["worker_id"] == worker.worker_id


async def test_a_worker_that_its_heartbeat_registered_again_says_that_it_is_idle(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the claim loop may notice it first.
    monkeypatch.setattr("holdfast._worker.claiming.LOOK_AGAIN_SECONDS", 3600)
    shop.task("work.echo")(_echo)
    async with shop.working(poll_interval="1h", heartbeat="100ms", lease="1s") as worker:
        await shop.sees(lambda: worker._parts.claimer.idle and worker._parts.heartbeat._rested_at > 0)
        shop.conn.execute("delete from queues.worker")
        await shop.logged("registered_again")
        await shop.until("select from queues.worker where idle")
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue(text="heard"))


async def test_what_waits_too_long_for_room_is_given_back_with_its_attempt(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    @shop.task("work.wait")
    async def wait() -> None:
        await gate.wait()

    asked = iter([4])
    monkeypatch.setattr(Demand, "wanted", lambda *_: next(asked, 0))
    handles = await wait.aenqueue_many([{}] * 4)
    async with shop.working(worker_concurrency=1, lease="1s", heartbeat="300ms"):
        await shop.logged("tasks_released", tasks=3)
        states = [await handle.astatus() for handle in handles]
        assert states.count("pending") == 3
        gate.set()
        await shop.sees(lambda: shop.lines("task_ended"))
    attempts = shop.conn.execute("select attempt from queues.ready").fetchall()
    assert attempts == [(0,), (0,), (0,)]


async def test_what_cannot_be_given_back_at_once_is_held_until_it_is(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application has it locked, for longer than its lease."""
    gate, ran = asyncio.Event(), []

    @shop.task("work.wait", max_attempts=1)
    async def wait(n: int) -> None:
        ran.append(n)
        await gate.wait()

    asked = iter([2])
    monkeypatch.setattr(Demand, "wanted", lambda *_: 1 if gate.is_set() else next(asked, 0))
    first, second = await wait.aenqueue_many([{"n": 1}, {"n": 2}])
    application = shop.db.connect(autocommit=False)
    async with shop.working(worker_concurrency=1, lease="2s", heartbeat="300ms"):
        await shop.becomes(first, "running")
        application.execute("select queues.cancel(%s)", [second.task_id])
        await shop.until(
            "select from queues.lease where task_id = %s and lease_until < queues.clock()", second.task_id
        )
        application.rollback()
        await shop.becomes(second, "pending")
        gate.set()
        row = await shop.ended(first, second)
    assert (row["status"], row["attempt"], ran) == ("succeeded", 1, [1, 2])


@pytest.mark.parametrize("fault", ["lost", "late"])
async def test_a_claim_whose_answer_is_lost_or_late_uses_up_no_attempt(shop: Workshop, fault: str) -> None:
    ran = []

    @shop.task("work.once", max_attempts=1)
    async def once(n: int) -> None:
        ran.append(n)

    handles = await once.aenqueue_many([{"n": n} for n in range(5)])
    wire = Wire(shop.db.dsn, Random(1))  # noqa: S311 - a test's own order
    if fault == "lost":
        wire.disturb(b"queues.claim(", lost=1.0)
    else:
        wire.disturb(b"queues.claim(", late=1.0, seconds=1.5)
    with wire.running():
        async with shop.working(wire.dsn, lease="1s", heartbeat="300ms"):
            await shop.sees(lambda: wire.cuts + wire.late)
            wire.disturb(b"queues.claim(")
            row = await shop.ended(*handles)
    assert (row["status"], row["attempt"], sorted(ran)) == ("succeeded", 1, [0, 1, 2, 3, 4])
    acts = shop.conn.execute("select distinct act from queues.act where act = 'released'").fetchall()
    assert acts == [("released",)]


async def test_what_could_not_be_given_back_because_a_connection_broke_uses_up_no_attempt(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    @shop.task("work.wait", max_attempts=1)
    async def wait() -> None:
        await gate.wait()

    asked = iter([4])
    monkeypatch.setattr(Demand, "wanted", lambda *_: 1 if gate.is_set() else next(asked, 0))
    handles = await wait.aenqueue_many([{}] * 4)
    shop.conn.execute("create sequence public.released; grant all on sequence public.released to public")
    shop.conn.execute(
        "create function public.break_once() returns trigger language plpgsql security definer as $$ begin"
        " if nextval('public.released') = 1 then perform pg_terminate_backend(pg_backend_pid()); end if;"
        " return new; end $$"
    )
    shop.conn.execute(
        "create trigger break_once before insert on queues.act for each row"
        " execute function public.break_once()"
    )
    async with shop.working(worker_concurrency=1, lease="3s", heartbeat="300ms"):
        await shop.logged("database_unavailable", connection="heartbeat")
        await shop.logged("tasks_released", tasks=3)
        gate.set()
        row = await shop.ended(*handles)
    assert (row["status"], row["attempt"]) == ("succeeded", 1)


async def test_nothing_is_claimed_while_results_cannot_be_told(shop: Workshop) -> None:
    shop.task("work.echo")(_echo)
    finish = "execute on function queues.finish(text, jsonb, boolean)"
    shop.conn.execute(f"revoke {finish} from holdfast_worker")
    async with shop.working(worker_concurrency=1):
        first = await shop.app.tasks["work.echo"].aenqueue(text="1")
        await shop.logged("database_unavailable", connection="settle")
        second = await shop.app.tasks["work.echo"].aenqueue(text="2")
        await shop.sees(lambda: len(shop.lines("database_unavailable", connection="settle")) >= 3)
        assert shop.conn.execute("select task_id from queues.lease").fetchall() == [(first.task_id,)]
        shop.conn.execute(f"grant {finish} to holdfast_worker")
        assert (await shop.ended(first, second))["status"] == "succeeded"


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long workers have rested for, or were ready to."""
    rests: list[float] = []
    wait = WakeupListener.wait

    async def note(listener: WakeupListener, seconds: float) -> bool:
        rests.append(seconds)
        return await wait(listener, seconds)

    monkeypatch.setattr(WakeupListener, "wait", note)
    return rests


@pytest.mark.parametrize("key", ["customer", None])
async def test_a_worker_rests_while_a_limit_holds_back_what_is_due(
    shop: Workshop, rests: list[float], key: str | None
) -> None:
    gate = asyncio.Event()

    @shop.task("work.wait")
    async def wait() -> None:
        await gate.wait()

    shop.conn.execute("select queues.set_limit('type', 'work.wait', max_running => 1, per_key => 1)")
    handles = [await wait.using(concurrency_key=key).aenqueue() for _ in range(2)]
    async with shop.working(poll_interval="1h"):
        await shop.sees(lambda: any(seconds > 1000 for seconds in rests))
        gate.set()
        await shop.ended(*handles)
    assert len([seconds for seconds in rests if seconds < 0.1]) < 10


async def test_a_worker_looks_again_when_a_rate_lets_the_next_one_start(
    shop: Workshop, rests: list[float]
) -> None:
    shop.task("work.echo")(_echo)
    shop.conn.execute("select queues.set_limit('queue', 'work', rate => 1, per => interval '2 seconds')")
    handles = [await shop.app.tasks["work.echo"].aenqueue(text="soon") for _ in range(2)]
    async with shop.working(poll_interval="1h"):
        await shop.ended(*handles)
    assert len([seconds for seconds in rests if seconds < 0.1]) < 10


async def test_a_worker_that_waits_for_a_slot_is_woken_when_another_worker_frees_one(
    shop: Workshop, rests: list[float]
) -> None:
    gate = asyncio.Event()

    @shop.task("work.wait")
    async def wait() -> None:
        await gate.wait()

    handles = [await wait.using(concurrency_key="customer", queue="narrow").aenqueue()]
    async with shop.working(poll_interval="1h", worker_concurrency=1, worker_queues="narrow"):
        await shop.until("select from queues.lease")
        handles.append(await wait.using(concurrency_key="customer").aenqueue())
        async with shop.working(poll_interval="1h"):
            await shop.until("select from queues.worker where idle")
            await shop.sees(lambda: rests[-1:] > [1.0])
            gate.set()
            await shop.ended(*handles)


@pytest.mark.parametrize("key", ["customer", None])
async def test_a_slot_that_frees_starts_a_task_of_which_its_worker_was_not_told(
    shop: Workshop, key: str | None
) -> None:
    gate = asyncio.Event()

    @shop.task("work.wait")
    async def wait() -> None:
        await gate.wait()

    shop.conn.execute("select queues.set_limit('type', 'work.wait', max_running => 1, per_key => 1)")
    shop.conn.execute("set holdfast.quiet = on")
    async with shop.working(poll_interval="1h"):
        handles = [await wait.using(concurrency_key=key).aenqueue()]
        await shop.becomes(handles[0], "claimed")
        await shop.until("select from queues.worker where idle")
        handles.append(wait.using(concurrency_key=key, tx=shop.conn).enqueue())
        gate.set()
        await shop.ended(*handles)


@pytest.mark.parametrize("key", ["customer", None])
async def test_the_third_of_three_tasks_starts_whenever_one_of_two_slots_frees(
    shop: Workshop, key: str | None
) -> None:
    """Twenty times in a row: one that nothing wakes would wait for an hour."""
    begun: list[int] = []
    gates = [asyncio.Event() for _ in range(60)]

    @shop.task("work.wait")
    async def wait(n: int) -> None:
        begun.append(n)
        await gates[n].wait()

    async def until_begun(count: int) -> None:
        await shop.sees(lambda: len(begun) == count)

    shop.conn.execute("select queues.set_limit('type', 'work.wait', max_running => 2, per_key => 2)")
    async with shop.working(poll_interval="1h"):
        for first in range(0, 60, 3):
            handles = [await wait.using(concurrency_key=key).aenqueue(n=first + n) for n in range(3)]
            await until_begun(first + 2)
            gates[begun[-2]].set()
            await until_begun(first + 3)
            for gate in gates[first : first + 3]:
                gate.set()
            await shop.ended(*handles)


async def test_a_slot_that_frees_while_the_worker_asks_for_one_is_used_at_once(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, asked = asyncio.Event(), Claimer.rest

    @shop.task("work.wait")
    async def wait() -> None:
        await gate.wait()

    shop.conn.execute("select queues.set_limit('queue', 'work', max_running => 1)")
    handles = [await wait.aenqueue(), await wait.aenqueue()]

    async def free_it_meanwhile(claimer: Claimer, *, holding: bool) -> Rest:
        found = await asked(claimer, holding=holding)
        if found.held and not gate.is_set():
            gate.set()
            await shop.logged("task_ended")
        return found

    monkeypatch.setattr(Claimer, "rest", free_it_meanwhile)
    async with shop.working(poll_interval="1h"):
        await shop.ended(*handles)


async def test_what_somebody_else_has_locked_is_looked_for_less_and_less_often(
    shop: Workshop, rests: list[float]
) -> None:
    shop.task("work.echo")(_echo)
    handle = await shop.app.tasks["work.echo"].aenqueue(text="late")
    other = shop.db.connect(autocommit=False)
    other.execute("select from queues.ready for update")
    async with shop.working(poll_interval="1h"):
        await shop.sees(lambda: any(seconds > 0.3 for seconds in rests))
        other.rollback()
        await shop.ended(handle)


def test_as_much_is_held_in_advance_as_starts_in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = _Clock(monkeypatch)
    demand = Demand(10, timedelta(seconds=30))
    now.advance(0.125)
    demand.started(500)  # (0 + 4000) / 2 a second
    assert demand.wanted(running=10, waiting=0) == 100


def test_no_more_is_held_in_advance_than_starts_within_a_tenth_of_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = _Clock(monkeypatch)
    demand = Demand(10, timedelta(milliseconds=100))
    now.advance(0.125)
    demand.started(500)
    assert demand.wanted(running=10, waiting=0) == 20


def test_nothing_more_is_wanted_while_half_of_what_is_held_in_advance_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = _Clock(monkeypatch)
    demand = Demand(10, timedelta(seconds=30))
    now.advance(0.125)
    demand.started(500)
    assert demand.wanted(running=10, waiting=51) == 0
    assert demand.wanted(running=10, waiting=50) == 50


def test_free_places_count_as_room_for_tasks_that_wait() -> None:
    demand = Demand(1000, timedelta(seconds=30))
    assert demand.wanted(running=100, waiting=451) == 0
    assert demand.wanted(running=100, waiting=450) == 450


def test_a_pace_of_long_ago_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = _Clock(monkeypatch)
    demand = Demand(10, timedelta(seconds=30))
    now.advance(0.125)
    demand.started(500)
    now.advance(5)
    assert demand.wanted(running=0, waiting=0) == 10


def test_the_cursor_is_dropped_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = _Clock(monkeypatch)
    cursor = Cursor()
    cursor.advance([_job()], short=False)
    assert cursor.current() is not None
    now.advance(1.1)
    assert cursor.current() is None


def test_the_cursor_is_dropped_when_a_claim_comes_back_short() -> None:
    cursor = Cursor()
    cursor.advance([_job()], short=True)
    assert cursor.current() is None


async def _echo(text: str) -> str:
    return text


def _job() -> Job:
    return Job(claimed("id"), time.monotonic())


class _Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("holdfast._worker.claiming.time.monotonic", lambda: self.now)

    def advance(self, seconds: float) -> None:
        self.now += seconds
