"""The clock while drain runs: retries, snoozes and schedules run when they are due, and `until` moves it."""

from datetime import datetime, timedelta

from holdfast import App, Exponential, Linear, Snooze, SyncContext
from holdfast.testing import Sandbox
from support.clock import NOON


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


def test_a_retry_runs_when_it_is_due(holdfast: Sandbox, app: App) -> None:
    @app.task("any.flaky", retry=Linear(step=60, jitter=0))
    def flaky(ctx: SyncContext) -> str:
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
