"""Wake-ups are a hint: heard where they come through, done without where they do not."""

import asyncio

import pytest

from holdfast._connections import session
from holdfast._connections.listener import AsyncConnection, Listener
from holdfast._worker.worker import Worker
from support.proxy import Proxy
from support.workshop import Workshop


@pytest.fixture(autouse=True)
def echo(shop: Workshop) -> None:
    @shop.task("work.echo")
    async def echo() -> str:
        return "done"


async def test_a_listener_hears_itself_before_it_counts_on_being_woken(shop: Workshop) -> None:
    async with shop.working(poll_interval="1h") as worker:
        await shop.sees(lambda: worker._parts.listener.listening)
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue())


async def test_a_listener_whose_connection_was_cut_hears_again(shop: Workshop) -> None:
    async with shop.working(poll_interval="1h") as worker:
        await shop.until("select from queues.worker where idle")
        await shop.terminate()
        await shop.logged("database_back", connection="listen")
        await shop.sees(lambda: worker._parts.listener.listening)
        await shop.until("select from queues.worker where idle")
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue())


async def test_behind_a_pooler_work_is_found_by_polling_with_one_warning(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "is_pooled", lambda *_: True)
    async with shop.working(poll_interval="50ms"):
        await shop.logged("no_wake_ups")
        row = await shop.ended(await shop.app.tasks["work.echo"].aenqueue())
    assert row["status"] == "succeeded"
    assert len(shop.lines("no_wake_ups")) == 1


async def test_where_notifications_do_not_come_through_work_is_found_by_polling(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(*_: object) -> bool:
        return False

    monkeypatch.setattr(Listener, "_hears_itself", deaf)
    async with shop.working(poll_interval="50ms"):
        await shop.logged("no_wake_ups")
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue())


async def test_a_listener_that_nobody_answers_is_replaced(
    shop: Workshop, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._connections.listener.PROBE_SECONDS", 0.05)
    monkeypatch.setattr("holdfast._connections.listener.REPLY_SECONDS", 0.5)
    async with shop.working(proxy.dsn, poll_interval="1h") as worker:
        listener = worker._parts.listener
        await shop.sees(lambda: listener.listening)
        proxy.freeze()
        await shop.logged("database_unavailable", connection="listen")
        proxy.thaw()
        proxy.cut()
        await shop.logged("database_back", connection="listen")
        await shop.sees(lambda: listener.listening)


async def test_a_listener_that_is_asked_for_a_sign_of_life_still_wakes_the_worker(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._connections.listener.PROBE_SECONDS", 0.02)
    async with shop.working(poll_interval="1h") as worker:
        await shop.until("select from queues.worker where idle")
        probes = await _count_probes(shop, worker)
        await shop.ended(await shop.app.tasks["work.echo"].aenqueue())
    assert probes >= 3
    assert not shop.lines("database_unavailable")


async def _count_probes(shop: Workshop, worker: Worker) -> int:
    listener = worker._parts.listener._listener
    probe, seen = listener._probe_connection, []

    async def counted(connection: AsyncConnection) -> None:
        await probe(connection)
        seen.append(connection)

    listener._probe_connection = counted  # type: ignore[method-assign]
    await shop.sees(lambda: len(seen) >= 3)
    return len(seen)


async def test_the_wake_up_of_another_queue_wakes_nobody(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._worker.claiming.LOOK_AGAIN_SECONDS", 3600)
    async with shop.working(poll_interval="1h") as worker:
        await shop.until("select from queues.worker where idle")
        claims = await resting(worker)
        shop.conn.execute("select pg_notify('holdfast', 'other')")
        shop.conn.execute("select pg_notify('holdfast', 'work')")
        await shop.sees(lambda: worker.metrics.batches["claim"].count > claims)
        assert await resting(worker) == claims + 1


async def resting(worker: Worker) -> int:
    """Return the number of claims once the worker makes no more of them."""
    count, before = worker.metrics.batches["claim"].count, -1
    while count != before:
        await asyncio.sleep(0.5)
        count, before = worker.metrics.batches["claim"].count, count
    return count
