"""While tasks come fast, one worker keeps the door: it looks for all, and those who enqueue wake nobody."""

import pytest

from holdfast.connections import session
from holdfast.worker.wakeups import KNOCKS, Door
from holdfast.worker.worker import Worker
from support.workshop import Workshop

WITHIN_SECONDS = 60.0
KEPT = "select where queues.is_kept('work', queues.clock())"
FREE = "select where not queues.is_kept('work', queues.clock())"


@pytest.fixture(autouse=True)
def echo(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow the machine is, what crowd sends is fast.
    monkeypatch.setattr("holdfast.worker.wakeups.WITHIN_SECONDS", WITHIN_SECONDS)

    @shop.task("work.echo")
    async def echo() -> str:
        return "done"


async def crowd(shop: Workshop, worker: Worker) -> None:
    """As many wake-ups at once as make a worker keep the door."""
    await shop.until("select from queues.worker where idle")
    await shop.sees(lambda: worker._parts.listener.hears)
    shop.conn.execute(
        "do $$ begin for n in 1..100 loop perform pg_notify('holdfast', 'work'); commit; end loop; end $$"
    )


async def test_what_comes_while_the_door_is_kept_is_found_and_told(shop: Workshop) -> None:
    async with shop.working(poll_interval="1h") as one, shop.working(poll_interval="1h"):
        await crowd(shop, one)
        await shop.until(KEPT)
        await shop.ended(*[await shop.app.tasks["work.echo"].aenqueue() for _ in range(3)])


async def test_a_door_that_is_no_longer_needed_is_left_and_wake_ups_come_again(shop: Workshop) -> None:
    async with shop.working(poll_interval="1h") as worker:
        await crowd(shop, worker)
        await shop.until(KEPT)
        await shop.until(FREE)
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue())
        assert worker.metrics.reconnects == 0


async def test_a_keeper_whose_connection_was_cut_costs_nobody_a_task(shop: Workshop) -> None:
    async with shop.working(poll_interval="1h") as worker:
        await crowd(shop, worker)
        await shop.until(KEPT)
        shop.conn.execute(
            "select pg_terminate_backend(a.pid) from pg_stat_activity a"
            " where a.datname = current_database() and a.query ~ 'queues.(ring|keep_door)'"
            " and a.pid <> pg_backend_pid()"
        )
        await shop.logged("door_not_kept")
        await shop.until(FREE)
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue())


async def test_behind_a_pooler_nobody_keeps_a_door(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop.working(poll_interval="50ms") as worker:
        await shop.sees(lambda: worker._parts.listener.hears)
        monkeypatch.setattr(session, "is_pooled", lambda *_: True)
        await crowd(shop, worker)
        await shop.sees(lambda: worker._parts.door._link.pooled)
        assert shop.conn.execute(KEPT).fetchone() is None


@pytest.mark.parametrize(("apart", "crowded"), [(0.5, True), (1.5, False)])
async def test_a_door_is_kept_only_when_wake_ups_come_fast(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, apart: float, crowded: bool
) -> None:
    worker = shop.worker()
    door: Door = worker._parts.door
    clock = iter(n * apart * WITHIN_SECONDS / KNOCKS for n in range(10 * KNOCKS))
    monkeypatch.setattr("holdfast.worker.wakeups.time.monotonic", lambda: next(clock))

    for _ in range(5 * KNOCKS):
        door.knock()

    assert door._crowded.is_set() == crowded
