"""What workers report about the attempts that they ran, and the charts and rankings made of it."""

from datetime import timedelta
from typing import Any

import pytest

from support.clock import Clock
from support.engine import Connection, answer, call, claim_one, enqueue, refused, rows, value


def element(type_: str, queue: str = "shop", **counted: Any) -> dict[str, Any]:
    return {"queue": queue, "type": type_, "run_seconds": 0.03, "delay_seconds": 1.5, **counted}


def record(conn: Connection, *elements: dict[str, Any]) -> None:
    answer(conn, "queues.record_activity", {"activity": list(elements)})


def declare(conn: Connection, *types: str, queue: str = "shop") -> None:
    declared = [{"type": type_, "queue": queue} for type_ in types]
    answer(conn, "queues.register_types", {"types": declared})


def series(conn: Connection, **arguments: Any) -> list[dict[str, Any]]:
    return call(conn, "queues.list_activity_of", arguments)


def test_reports_of_five_minutes_add_up_for_type_queue_and_all(tx: Connection, clock: Clock) -> None:
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
    assert pay["mean_run"] == pytest.approx(0.06 / 9)
    assert pay["mean_delay"] == pytest.approx(3 / 9)


def test_steps_without_activity_are_gaps(tx: Connection, clock: Clock) -> None:
    declare(tx, "shop.pay")
    record(tx, element("shop.pay", succeeded=1))
    clock.advance(900)
    record(tx, element("shop.pay", succeeded=1))
    first, second = series(tx, type="shop.pay")
    assert second["at"] - first["at"] == timedelta(minutes=15)


def test_longer_steps_add_up_shorter_ones(tx: Connection, clock: Clock) -> None:
    declare(tx, "shop.pay")
    for _ in range(30):
        record(tx, element("shop.pay", succeeded=1))
        clock.advance(60)
    found = series(tx, type="shop.pay", since=timedelta(days=1), step=timedelta(minutes=15))
    assert 2 <= len(found) <= 3
    assert sum(row["succeeded"] for row in found) == 30


def test_a_worker_cannot_fill_the_table_with_names_of_its_own(tx: Connection, clock: Clock) -> None:
    del clock
    declare(tx, "shop.pay")
    made_up = [element(f"made.up.{n}", f"queue-{n}", succeeded=1) for n in range(50)]
    record(tx, *made_up, element("unknown.type", succeeded=1))
    kept = rows(tx, "select queue, type from queues.activity order by 1, 2")
    assert kept == [{"queue": "", "type": ""}, {"queue": "shop", "type": ""}]
    [everything] = series(tx)
    assert everything["succeeded"] == 51


@pytest.mark.parametrize(
    "wrong",
    [
        {"succeeded": -1},
        {"failed": 2_000_000_000},
        {"run_seconds": -1},
        {"delay_seconds": 1e13},
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
    declare(tx, "shop.pay")
    for _ in range(30):
        record(tx, element("shop.pay", succeeded=1))
        clock.advance(hours * 240)  # 15 within the time
    [first, *_] = call(tx, "queues.rank_types", {"since": timedelta(hours=hours)})
    assert 15 <= first["succeeded"] <= 17


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
    clock.advance(24 * 3600)
    answer(tx, "queues.take_sample", {})
    assert value(tx, "select count(*) from queues.activity") == 3
    clock.advance(2 * 3600)
    answer(tx, "queues.take_sample", {})
    assert value(tx, "select count(*) from queues.activity") == 0


def test_a_ranking_reads_a_bounded_number_of_rows(tx: Connection, clock: Clock) -> None:
    declare(tx, "shop.new")
    clock.advance(300)
    tx.execute(
        """
        insert into queues.activity (at, queue, type, succeeded)
        select queues.clock() - interval '10 minutes', 'shop', 'old.' || n, 5
        from generate_series(1, 1000) n
        union all
        select queues.clock() - interval '5 minutes', 'shop', 'new.' || n, 1
        from generate_series(1, 200000) n
        """
    )
    ranked = call(tx, "queues.rank_types", {"max_types": 1})
    assert [row["type"][:4] for row in ranked if row["ranking"] == "busiest"] == ["new."]
