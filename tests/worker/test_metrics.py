"""Everything that happens is counted, and served to Prometheus when asked."""

import asyncio
import socket
import sys
import urllib.request

import pytest

from holdfast import Linear, NoRetry, Snooze
from holdfast._worker.metrics import MAX_COUNTED, OTHERS, Histogram, Metrics, serve
from holdfast.errors import ConfigurationError
from support.workshop import Workshop


def test_what_is_counted_does_not_grow_with_the_types_that_clients_invent() -> None:
    metrics = Metrics()
    for n in range(MAX_COUNTED + 50):
        metrics.attempts_of("work", f"work.type{n}").endings["failed"] += 1
    assert len(metrics.attempts) == MAX_COUNTED + 1
    assert metrics.attempts[OTHERS].endings["failed"] == 50
    assert metrics.finished["failed"] == MAX_COUNTED + 50


async def test_attempts_are_counted_by_what_they_led_to(shop: Workshop) -> None:
    @shop.task("work.end", retry=Linear(step=0.01), max_attempts=2)
    async def end(how: str) -> Snooze | None:
        if how == "raise":
            raise RuntimeError
        return None

    @shop.task("work.snooze")
    async def snooze() -> Snooze:
        return Snooze(1000)

    async with shop.working() as worker:
        await shop.ended(await end.aenqueue(how="return"))
        await shop.ended(await end.aenqueue(how="raise"))
        await shop.becomes(await snooze.aenqueue(), "scheduled")
        await shop.sees(lambda: worker.metrics.finished.total() == 4)
        assert worker.metrics.finished == {"succeeded": 1, "retrying": 1, "dead_letter": 1, "snoozed": 1}
        assert worker.metrics.claimed == 4


async def test_the_time_of_handlers_is_counted_by_type(shop: Workshop) -> None:
    @shop.task("work.echo")
    async def echo() -> None:
        pass

    async with shop.working() as worker:
        await shop.ended(await echo.aenqueue())
        assert worker.metrics.handler_seconds["work.echo"].count == 1


async def test_the_time_from_due_to_claimed_is_counted_by_the_databases_clock(shop: Workshop) -> None:
    @shop.task("work.echo")
    async def echo() -> None:
        pass

    await echo.aenqueue()
    shop.conn.execute("update queues.ready set run_at = run_at - interval '1 minute'")
    async with shop.working() as worker:
        await shop.sees(lambda: worker.metrics.queue_delay.count == 1)
        assert 60 <= worker.metrics.queue_delay.total < 120


async def test_what_is_held_now_is_counted(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.long")
    async def long() -> None:
        await gate.wait()

    async with shop.working() as worker:
        handles = await long.aenqueue_many([{}] * 3)
        await shop.sees(lambda: worker.metrics.in_flight == 3)
        gate.set()
        await shop.ended(*handles)
        await shop.sees(lambda: worker.metrics.in_flight == 0)


async def test_round_trips_are_counted_with_their_sizes(shop: Workshop) -> None:
    @shop.task("work.echo")
    async def echo() -> None:
        pass

    handles = await echo.aenqueue_many([{}] * 7)
    async with shop.working(heartbeat="100ms") as worker:
        await shop.ended(*handles)
        await shop.sees(lambda: worker.metrics.batches["heartbeat"].count >= 2)
        assert worker.metrics.batches["claim"].total == 7
        # More if a heartbeat held rows at that moment: then they are reported again.
        assert worker.metrics.batches["finish"].total >= 7


async def test_prometheus_is_served_on_this_machine_only(shop: Workshop) -> None:
    @shop.task("work.echo", retry=NoRetry())
    async def echo() -> None:
        pass

    async with shop.working() as worker:
        await shop.ended(await echo.aenqueue())
        await shop.sees(lambda: worker.metrics.finished["succeeded"])
        port, stop = serve(worker.metrics, 0)
        text = await asyncio.to_thread(_get, port)
        stop()
    for line in (
        "holdfast_claimed_total 1.0",
        "# HELP holdfast_finished_total Attempts that ended, by what they led to.",
        'holdfast_finished_total{status="succeeded"} 1.0',
        'holdfast_handler_seconds_count{type="work.echo"} 1.0',
        "holdfast_queue_delay_seconds_count 1.0",
        "holdfast_in_flight 0.0",
        'holdfast_batch_size_count{kind="finish"} 1.0',
        "holdfast_lost_leases_total 0.0",
        "holdfast_reconnects_total 0.0",
    ):
        assert line in text.splitlines()


def test_a_port_that_is_taken_is_refused_with_its_variable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"METRICS_PORT={port} cannot be used: Address"):
            serve(Metrics(), port)


def test_without_its_library_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigurationError, match=r"needs prometheus-client. pip install 'holdfast-pg\[m"):
        serve(Metrics(), 0)


def test_a_histogram_counts_what_is_at_or_below_each_limit() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.add(value)
    assert histogram.cumulative() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert histogram.total == 12


def _get(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return str(answer.read().decode())


async def test_a_worker_reports_what_it_ran_for_the_charts(shop: Workshop) -> None:
    @shop.task("work.echo", retry=Linear(step=0.01), max_attempts=2)
    async def echo(fails: bool) -> None:
        if fails:
            raise RuntimeError

    async with shop.working():
        await shop.ended(*await echo.aenqueue_many([{"fails": False}] * 3 + [{"fails": True}]))
    counted = shop.conn.execute(
        "select succeeded, failed, retrying, mean_run > 0 from queues.list_activity_of(type => 'work.echo')"
    ).fetchall()
    assert counted == [(3, 1, 1, True)]
