"""Schedules in a worker: declared when it starts, fired by the leader, once for each time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import pytest

from holdfast import App
from holdfast._engine import Engine, Statement, schedules
from holdfast._engine.enqueue import NewTask
from holdfast._engine.schedules import NewSchedule
from holdfast._engine.tasks import task_status
from holdfast._telemetry.logs import worker_log
from holdfast._worker.registration import schedules_of
from holdfast._worker.scheduling import BATCH, FireSchedules, PruneFirings
from holdfast.errors import ConfigurationError, InvalidHandler
from support.clock import Clock
from support.database import Database
from support.engine import value
from support.schedules import add, at, firings, nominal_times, schedule, tasks
from support.workshop import Line, Workshop

T = TypeVar("T")


@pytest.fixture
def leader(db: Database) -> Engine:
    """A session with a worker's rights."""
    return Engine(db.connect("holdfast_worker"))


@pytest.fixture
def duty(logs: list[Line]) -> FireSchedules:
    return FireSchedules(worker_log("w1"))


def test_a_new_schedule_is_planned_by_the_engines_clock(
    db: Database, leader: Engine, duty: FireSchedules
) -> None:
    admin = db.connect()
    Clock(admin, at(12, 30))
    add(admin, cron="0 * * * *")

    assert duty.run(leader.run) == pytest.approx(duty.interval)
    assert schedule(admin)["next_at"] == at(13)


def test_a_schedule_fires_through_days_and_nights(db: Database, leader: Engine, duty: FireSchedules) -> None:
    admin = db.connect()
    clock = Clock(admin, datetime(2030, 3, 30, 12, tzinfo=UTC))
    add(admin, cron="30 2 * * *", tz="Europe/Berlin")
    for _ in range(72):
        duty.run(leader.run)
        clock.advance(3600)

    assert [f"{time:%d %H:%M}" for time in nominal_times(admin)] == ["31 01:00", "01 00:30", "02 00:30"]


def test_it_sleeps_until_the_next_time_is_due(db: Database, leader: Engine, duty: FireSchedules) -> None:
    admin = db.connect()
    Clock(admin, at(12, 59) + timedelta(seconds=59))
    assert duty.run(leader.run) is None
    add(admin, cron="0 * * * *")

    assert duty.run(leader.run) == pytest.approx(1.0)


def test_what_was_missed_is_caught_up_as_the_policy_says(
    db: Database, leader: Engine, duty: FireSchedules
) -> None:
    admin = db.connect()
    clock = Clock(admin)
    add(admin, "a", every="1 hour", catch_up="all", catch_up_limit=3)
    add(admin, "b", every="1 hour", catch_up="latest")
    add(admin, "c", every="1 hour", catch_up="skip")
    duty.run(leader.run)
    clock.set(at(18, 30))
    duty.run(leader.run)

    assert nominal_times(admin, "a") == [at(16), at(17), at(18)]
    assert nominal_times(admin, "b") == [at(18)]
    assert nominal_times(admin, "c") == []
    assert firings(admin, "c") == {at(13): "missed", at(18): "missed"}


@pytest.mark.parametrize("back", [0.3, 60, 3600, 86400, 400 * 86400])
def test_a_clock_set_back_and_forward_makes_no_second_task(
    db: Database, leader: Engine, duty: FireSchedules, back: float
) -> None:
    admin = db.connect()
    clock = Clock(admin)
    add(admin, every="10 minutes", catch_up="all")
    for _ in range(4):
        duty.run(leader.run)
        clock.advance(600)
    clock.advance(-back)
    for _ in range(3):
        duty.run(leader.run)
        clock.advance(600)
    clock.advance(back)
    duty.run(leader.run)
    duty.run(leader.run)

    found = nominal_times(admin)
    assert len(found) == len(set(found))
    assert set(found) >= {at(12, 10 * n) for n in range(1, 6)}
    assert value(admin, "select queues.next_firing() <= interval '10 minutes'")


def test_a_schedule_that_cannot_be_read_keeps_no_other_from_firing(
    db: Database, leader: Engine, duty: FireSchedules, logs: list[Line]
) -> None:
    admin = db.connect()
    clock = Clock(admin)
    add(admin, "a", cron="0 0 31 2 1-5", tz="Mars/North")
    add(admin, "b")
    duty.run(leader.run)
    clock.set(at(13))
    duty.run(leader.run)

    assert (schedule(admin, "a")["state"], "Mars/North" in schedule(admin, "a")["problem"]) == (
        "broken",
        True,
    )
    assert len(tasks(admin, "b")) == 1
    assert [line["schedule"] for line in logs if line["event"] == "schedule_failed"] == ["a"]


def test_a_task_that_is_refused_keeps_no_other_schedule_from_firing(
    db: Database, leader: Engine, duty: FireSchedules
) -> None:
    """It was in order when it was added; the limit came later."""
    admin = db.connect()
    clock = Clock(admin)
    add(admin, "a", payload={"text": "x" * 9000})
    add(admin, "b")
    duty.run(leader.run)
    admin.execute("update queues.setting set value = 5000 where name = 'max_payload_bytes'")
    clock.set(at(13))
    duty.run(leader.run)
    admin.execute("update queues.setting set value = 50000 where name = 'max_payload_bytes'")

    assert (schedule(admin, "a")["state"], firings(admin, "a")) == ("broken", {at(13): "missed"})
    assert len(tasks(admin, "b")) == 1
    clock.set(at(14))
    duty.run(leader.run)
    assert (schedule(admin, "a")["state"], nominal_times(admin, "a")) == ("active", [at(14)])


def test_many_schedules_are_seen_to_in_steps(db: Database, leader: Engine, duty: FireSchedules) -> None:
    admin = db.connect()
    Clock(admin)
    for n in range(BATCH + 1):
        add(admin, f"s{n}")

    assert duty.run(leader.run) == 0.0
    assert duty.run(leader.run) == pytest.approx(duty.interval)
    assert value(admin, "select count(*) from queues.schedule where next_at is null") == 0


def test_one_statement_decides_on_a_batch(db: Database, leader: Engine, duty: FireSchedules) -> None:
    admin = db.connect()
    Clock(admin)
    for n in range(10):
        add(admin, f"s{n}")
    sent: list[str] = []

    def execute(statement: Statement[T], /) -> T:
        sent.append(statement.sql)
        return leader.run(statement)

    duty.run(execute)
    assert ["decide_schedules" in sql for sql in sent] == [False, True, False]


class Interrupted(Exception):
    pass


def test_leaders_that_act_at_once_and_end_anywhere_make_one_task_per_time(
    db: Database, duty: FireSchedules
) -> None:
    """Each round, three leaders look at the same times; each may end before or after any of its steps."""
    admin = db.connect()
    clock = Clock(admin)
    leaders = [db.connect("holdfast_worker", autocommit=False) for _ in range(3)]
    add(admin, "a", every="1 minute", catch_up="all")
    add(admin, "b", cron="* * * * *", catch_up="all", overlap="skip")
    duty.run(Engine(admin).run)
    for lap in range(30):
        clock.advance(60)
        for number, session in enumerate(leaders):
            ask = _ending_at(session, step=(lap + number) % 5, before_commit=lap % 2 == 0)
            try:
                duty.run(ask)
            except Interrupted:
                session.rollback()

    times = [at(12, n) for n in range(1, 31)]
    assert nominal_times(admin, "a") == times
    assert list(firings(admin, "b")) == times
    assert sorted(firings(admin, "b").values()) == ["fired"] + ["overlapped"] * 29


def _ending_at(session: Any, step: int, *, before_commit: bool) -> Callable[[Statement[T]], T]:
    """A leader whose process ends in the middle of its step of this number, or right after its commit."""
    taken = 0

    def ask(statement: Statement[T], /) -> T:
        nonlocal taken
        answer = Engine(session).run(statement)
        ends, taken = taken == step, taken + 1
        if not (ends and before_commit):
            session.commit()
        if ends:
            raise Interrupted
        return answer

    return ask


def test_decisions_are_forgotten_after_a_week(db: Database, leader: Engine, duty: FireSchedules) -> None:
    admin = db.connect()
    clock = Clock(admin)
    add(admin)
    duty.run(leader.run)
    clock.set(at(13))
    duty.run(leader.run)
    prune = PruneFirings()

    assert (prune.run(leader.run), len(firings(admin))) == (None, 1)
    clock.advance(7 * 86400 + 1)
    assert (prune.run(leader.run), len(firings(admin))) == (None, 0)


async def test_a_worker_declares_its_schedules_and_fires_them(shop: Workshop) -> None:
    ran: list[str] = []

    @shop.app.schedule(every=timedelta(seconds=1), arguments={"who": "you"}, name="greeting")
    @shop.task("work.greet")
    def greet(who: str) -> None:
        ran.append(who)

    async with shop.working(poll_interval="100ms"):
        await shop.sees(lambda: len(ran) >= 2)
        row = await shop.until("select * from queues.schedule_status")

    assert (row["name"], row["declared_by"], row["state"]) == ("greeting", "shop", "active")
    assert set(ran) == {"you"}
    assert shop.lines("schedule_declared", schedule="greeting", verdict="added")
    late = value(
        shop.conn,
        "select extract(epoch from max(decided_at - nominal_at)) from queues.schedule_firing"
        " where decision = 'fired'",
    )
    assert 0 <= late < 30


async def test_a_worker_that_may_not_enqueue_declares_nothing_and_says_what_to_do(shop: Workshop) -> None:
    @shop.app.schedule("* * * * *")
    @shop.task("work.greet")
    def greet() -> None: ...

    shop.app.origin = "shop.tasks:app"
    async with shop.working(shop.db.dsn_as("holdfast_worker")):
        line = await shop.logged("schedules_not_declared")
        await shop.ended(await greet.aenqueue())

    assert "holdfast schedules apply shop.tasks:app" in line["hint"]
    assert value(shop.conn, "select count(*) from queues.schedule") == 0


async def test_a_worker_that_may_enqueue_declares_in_the_namespace_of_its_login(shop: Workshop) -> None:
    @shop.app.schedule("* * * * *")
    @shop.task("work.greet")
    def greet() -> None: ...

    shop.conn.execute("create role shop_worker login in role holdfast_worker, holdfast_client")
    try:
        shop.conn.execute("select queues.add_to_namespace('shop_worker', 'shop')")
        async with shop.working(shop.db.dsn_as("shop_worker")):
            await shop.logged("schedule_declared", schedule="work.greet", verdict="added")
    finally:
        shop.conn.execute("drop role shop_worker")
    assert schedule(shop.conn, "work.greet")["namespace"] == "shop"


async def test_a_worker_without_schedules_needs_no_right_to_declare(shop: Workshop) -> None:
    async with shop.working(shop.db.dsn_as("holdfast_worker")):
        pass
    assert shop.lines("schedules_not_declared") == []


async def test_a_schedule_that_is_taken_keeps_no_worker_from_its_tasks(shop: Workshop) -> None:
    add(shop.conn, "work.greet")

    @shop.app.schedule("* * * * *")
    @shop.task("work.greet")
    def greet() -> None: ...

    async with shop.working():
        await shop.logged("schedule_name_taken", schedule="work.greet")
        await shop.ended(await greet.aenqueue())


async def test_what_left_the_code_is_orphaned_by_the_next_worker(shop: Workshop) -> None:
    task = NewTask("work.greet")
    Engine(shop.conn).run(
        schedules.declare_schedules("shop", [NewSchedule(name="old", task=task, cron="* * * * *")])
    )

    async with shop.working():
        await shop.logged("schedule_declared", schedule="old", verdict="orphaned")
    assert schedule(shop.conn, "old")["state"] == "orphaned"


def test_an_app_is_named_where_it_is_made_or_by_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert App().name is None
    monkeypatch.setenv("HOLDFAST_APP_NAME", "shop")
    assert App().name == "shop"
    assert App(name="office").name == "office"


def test_schedules_need_an_app_with_a_name() -> None:
    assert schedules_of(App()) is None
    app = App()
    app.schedule("* * * * *", name="nightly")(app.task("work.report")(lambda: None))
    with pytest.raises(ConfigurationError, match=r"schedules and no name.*nightly"):
        schedules_of(app)


def test_a_schedule_belongs_above_a_task() -> None:
    app = App()
    with pytest.raises(InvalidHandler, match=r"above @app\.task"):
        app.schedule("* * * * *")(lambda: None)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({}, "cron expression or every"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "* * * * *", "tz": "Mars/North"}, "tz"),
        ({"cron": "* * * * *", "every": 5}, "not both"),
        ({"every": timedelta(0)}, "every"),
        ({"every": 5, "tz": "UTC"}, "tz"),
        ({"every": 5, "anchor": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001 - what is refused
        ({"cron": "* * * * *", "catch_up": "some"}, "catch_up"),
        ({"cron": "* * * * *", "overlap": "some"}, "overlap"),
        ({"cron": "* * * * *", "arguments": {"nonsense": 1}}, "nonsense"),
        ({"cron": "* * * * *", "arguments": {"n": 1, "key": "k"}}, "key"),
    ],
)
def test_a_schedule_that_could_not_be_kept_is_refused_at_import(options: Any, part: str) -> None:
    app = App()

    @app.task("work.count")
    def count(n: int = 0) -> None: ...

    with pytest.raises(InvalidHandler, match=part):
        app.schedule(**options)(count)


def test_a_second_schedule_of_a_task_needs_a_name() -> None:
    app = App()

    @app.schedule("0 9 * * *", name="second")
    @app.schedule("0 17 * * *")
    @app.task("work.count")
    def count() -> None: ...

    assert list(app.schedules) == ["work.count", "second"]
    with pytest.raises(InvalidHandler, match="Give this one another name"):
        app.schedule("0 18 * * *")(count)


def test_an_application_does_not_declare_what_acts_with_the_rights_of_the_database() -> None:
    app = App()

    @app.task("work.call", executor="db_function")
    def call() -> None: ...

    with pytest.raises(InvalidHandler, match="holdfast_process"):
        app.schedule("* * * * *")(call)


def test_a_schedules_task_is_as_enqueue_would_make_it(db: Database) -> None:
    app = App(db.dsn)

    @app.schedule("* * * * *", arguments={"n": 7})
    @app.task("work.count", queue="slow", priority=4, max_attempts=9, lease=60)
    def count(n: int) -> None: ...

    engine = Engine(db.connect())
    engine.run(schedules.declare_schedules("shop", app.schedules.values()))
    task_id: UUID = engine.run(schedules.run_schedule("work.count"))
    found = engine.run(task_status(task_id))
    assert found is not None
    assert (found.payload, found.queue, found.priority, found.max_attempts) == ({"n": 7}, "slow", 4, 9)
    assert found.lease == timedelta(seconds=60)
    app.close()
