"""What workers report about the attempts that they ran, and the charts and rankings made of it."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast._engine.activity import SECONDS
from support.clock import Clock
from support.engine import Connection, answer, call, claim_one, enqueue, refused, rows, value

BUCKETS = len(SECONDS) + 1


def counts(seconds: float, times: int) -> list[int]:
    at = next((n for n, limit in enumerate(SECONDS) if seconds <= limit), BUCKETS - 1)
    return [times if n == at else 0 for n in range(BUCKETS)]


def element(type_: str, queue: str = "shop", **counted: Any) -> dict[str, Any]:
    given = {"run_counts": counts(0.03, 1), "delay_counts": counts(1.5, 1), "run_seconds": 0.03}
    return {"queue": queue, "type": type_, **given, **counted}


def record(conn: Connection, *elements: dict[str, Any]) -> None:
    answer(conn, "queues.record_activity", {"activity": list(elements)})


def declare(conn: Connection, *types: str, queue: str = "shop") -> None:
    declared = [{"type": type_, "queue": queue} for type_ in types]
    answer(conn, "queues.register_types", {"types": declared})


def series(conn: Connection, **arguments: Any) -> list[dict[str, Any]]:
    return call(conn, "queues.list_activity_of", arguments)


def test_the_limits_are_those_of_the_worker(tx: Connection) -> None:
    assert value(tx, "select queues.activity_limits()") == list(SECONDS)


def test_reports_of_a_minute_add_up_for_type_queue_and_all(tx: Connection, clock: Clock) -> None:
    declare(tx, "shop.pay", "shop.ship")
    record(tx, element("shop.pay", succeeded=3), element("shop.ship", failed=1))
    clock.advance(5)
    record(tx, element("shop.pay", succeeded=2, retrying=4))
    [pay] = series(tx, queue="shop", type="shop.pay")
    [anywhere] = series(tx, type="shop.pay")
    [queue] = series(tx, queue="shop")
    [everything] = series(tx)
    assert (pay["succeeded"], pay["failed"], pay["retrying"]) == (5, 0, 4)
    assert anywhere == pay
    assert (queue["succeeded"], queue["failed"], queue["retrying"]) == (5, 1, 4)
    assert queue == everything
    assert 0.02 < pay["run_p50"] <= pay["run_p99"] <= 0.05
    assert 1 < pay["delay_p50"] <= pay["delay_p99"] <= 2


def test_steps_without_activity_are_gaps(tx: Connection, clock: Clock) -> None:
    declare(tx, "shop.pay")
    record(tx, element("shop.pay", succeeded=1))
    clock.advance(180)
    record(tx, element("shop.pay", succeeded=1))
    first, second = series(tx, type="shop.pay")
    assert second["at"] - first["at"] == timedelta(minutes=3)


def test_a_day_is_told_in_quarters_of_an_hour(tx: Connection, clock: Clock) -> None:
    declare(tx, "shop.pay")
    for _ in range(30):
        record(tx, element("shop.pay", succeeded=1))
        clock.advance(60)
    found = series(tx, type="shop.pay", since=timedelta(days=1))
    assert 2 <= len(found) <= 3
    assert sum(row["succeeded"] for row in found) == 30


def test_a_worker_cannot_fill_the_table_with_names_of_its_own(tx: Connection, clock: Clock) -> None:
    del clock
    declare(tx, "shop.pay")
    made_up = [element(f"made.up.{n}", f"queue-{n}", succeeded=1) for n in range(50)]
    record(tx, *made_up, element("unknown.type", succeeded=1))
    kept = rows(tx, "select queue, type from queues.activity where period = 1 order by 1, 2")
    assert kept == [{"queue": "", "type": ""}, {"queue": "shop", "type": ""}]
    [everything] = series(tx)
    assert everything["succeeded"] == 51


@pytest.mark.parametrize(
    "wrong",
    [
        {"succeeded": -1},
        {"failed": 2_000_000_000},
        {"run_counts": [1]},
        {"delay_counts": None},
        {"run_counts": [-1] * BUCKETS},
        {"run_seconds": -1},
    ],
)
def test_counts_that_cannot_be_are_refused(tx: Connection, wrong: dict[str, Any]) -> None:
    with refused(tx, "QF400", "counts"):
        record(tx, element("shop.pay") | wrong)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("busiest", ["a.often", "b.slow", "c.fails"]),
        ("slowest", ["b.slow", "a.often"]),
        ("failing", ["c.fails"]),
    ],
)
def test_types_are_ranked(tx: Connection, clock: Clock, by: str, expected: list[str]) -> None:
    del clock
    declare(tx, "a.often", "b.slow", "c.fails")
    record(
        tx,
        element("a.often", succeeded=100, run_seconds=1.0),
        element("b.slow", succeeded=10, run_seconds=50.0),
        element("c.fails", retrying=1, failed=2, run_seconds=0.0),
    )
    ranked = call(tx, "queues.rank_types", {"max_types": len(expected)})
    assert [row["type"] for row in ranked if row["ranking"] == by] == expected
    assert call(tx, "queues.rank_types", {"of_queue": "other"}) == []


@pytest.mark.parametrize("hours", [1, 6])
def test_a_ranking_counts_what_was_in_its_time_once(tx: Connection, clock: Clock, hours: int) -> None:
    """The time is put together from longer and shorter periods."""
    declare(tx, "shop.pay")
    for _ in range(30):
        record(tx, element("shop.pay", succeeded=1))
        clock.advance(hours * 240)  # 15 within the time
    [first, *_] = call(tx, "queues.rank_types", {"since": timedelta(hours=hours)})
    assert 15 <= first["succeeded"] <= 16


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        ("list_activity_of", {"since": timedelta(days=3)}),
        ("list_activity_of", {"step": timedelta(seconds=5)}),
        ("list_activity_of", {"since": "10000 years"}),
        ("list_activity_of", {"step": "1 mon"}),
        ("rank_types", {"since": timedelta(0)}),
        ("rank_types", {"since": "10000 years"}),
        ("rank_types", {"max_types": 0}),
    ],
)
def test_what_cannot_be_shown_is_refused(tx: Connection, function: str, wrong: dict[str, Any]) -> None:
    with refused(tx, "QF400", next(iter(wrong))):
        call(tx, f"queues.{function}", wrong)


def test_a_step_may_be_written_with_months(tx: Connection) -> None:
    assert rows(tx, "select * from queues.list_activity_of(step => '1 mon -29 days -12 hours')") == []


def test_a_sample_counts_what_waits_per_queue_and_type(tx: Connection, clock: Clock) -> None:
    for type_ in ("shop.pay", "shop.pay", "shop.ship"):
        enqueue(tx, type_, queue="shop")
    enqueue(tx, "shop.pay", queue="shop", run_at=clock.now + timedelta(hours=1))
    clock.advance(1)
    claim_one(tx, queues=["shop"])
    answer(tx, "queues.take_sample", {})
    [queue], [pay] = series(tx, queue="shop"), series(tx, queue="shop", type="shop.pay")
    assert (queue["due"], queue["running"]) == (2, 1)
    assert pay["due"] + pay["running"] == 2


def test_old_activity_is_forgotten(tx: Connection, clock: Clock) -> None:
    declare(tx, "shop.pay")
    record(tx, element("shop.pay", succeeded=1))
    clock.advance(3 * 3600)
    answer(tx, "queues.take_sample", {})
    assert value(tx, "select array_agg(distinct period) from queues.activity") == [15, 180]
    clock.advance(3 * 86400)
    answer(tx, "queues.take_sample", {})
    assert value(tx, "select count(*) from queues.activity") == 0
