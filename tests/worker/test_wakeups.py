"""While tasks come fast, one worker holds the wake-ups: it looks for all, and enqueueing wakes no worker."""

import pytest

from holdfast._connections import session
from holdfast._connections.listener import CROWD
from holdfast._worker.worker import Worker
from support.workshop import Workshop

CROWD_SECONDS = 60.0
HELD = "select where queues.are_wakeups_held('work', queues.clock())"
FREE = "select where not queues.are_wakeups_held('work', queues.clock())"


@pytest.fixture(autouse=True)
def echo(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow the machine is, what crowd sends is fast.
    monkeypatch.setattr("holdfast._connections.listener.CROWD_SECONDS", CROWD_SECONDS)

    @shop.task("work.echo")
    async def echo() -> str:
        return "done"


async def crowd(shop: Workshop, worker: Worker) -> None:
    """As many wake-ups at once as make a worker hold them."""
    await shop.until("select from queues.worker where idle")
    await shop.sees(lambda: worker._parts.listener.listening)
    shop.conn.execute(
        "do $$ begin for n in 1..100 loop perform pg_notify('holdfast', 'work'); commit; end loop; end $$"
    )


async def test_tasks_that_come_while_wake_ups_are_held_are_found(shop: Workshop) -> None:
    async with shop.working(poll_interval="1h") as one, shop.working(poll_interval="1h"):
        await crowd(shop, one)
        await shop.until(HELD)
        await shop.ended(*[await shop.app.tasks["work.echo"].aenqueue() for _ in range(3)])


async def test_wake_ups_come_again_when_holding_them_is_no_longer_needed(shop: Workshop) -> None:
    async with shop.working(poll_interval="1h") as worker:
        await crowd(shop, worker)
        await shop.until(HELD)
        await shop.until(FREE)
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue())
        assert worker.metrics.reconnects == 0


async def test_a_holder_whose_connection_is_cut_delays_no_task(shop: Workshop) -> None:
    async with shop.working(poll_interval="1h") as worker:
        await crowd(shop, worker)
        await shop.until(HELD)
        shop.conn.execute(
            "select pg_terminate_backend(a.pid) from pg_stat_activity a"
            " where a.datname = current_database() and a.query ~ 'queues.(notify_idle|hold_wakeups)'"
            " and a.pid <> pg_backend_pid()"
        )
        await shop.logged("wakeups_not_held")
        await shop.until(FREE)
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue())


async def test_behind_a_pooler_wake_ups_are_not_held(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop.working(poll_interval="50ms") as worker:
        await shop.sees(lambda: worker._parts.listener.listening)
        monkeypatch.setattr(session, "is_pooled", lambda *_: True)
        await crowd(shop, worker)
        await shop.sees(lambda: worker._parts.throttle._connection.pooled)
        assert shop.conn.execute(HELD).fetchone() is None


@pytest.mark.parametrize(("apart", "crowded"), [(0.5, True), (1.5, False)])
async def test_wake_ups_are_held_only_when_they_come_fast(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, apart: float, crowded: bool
) -> None:
    worker = shop.worker()
    listener = worker._parts.listener
    clock = iter(n * apart * CROWD_SECONDS / CROWD for n in range(10 * CROWD))
    monkeypatch.setattr("holdfast._connections.listener.time.monotonic", lambda: next(clock))

    for _ in range(5 * CROWD):
        listener._notified("work")

    assert listener.crowded.is_set() == crowded
