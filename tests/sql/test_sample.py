"""Samples of how things stand, and the charts that are made of them."""

from datetime import timedelta
from typing import Any

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, answer, call, claim_one, end, enqueue, refused, rows, value


def take(conn: Connection, **options: bool) -> bool:
    return bool(answer(conn, "queues.take_sample", options))


def test_a_sample_is_taken_once_in_ten_seconds(tx: Connection, clock: Clock) -> None:
    assert take(tx) is True
    assert take(tx) is False
    clock.advance(10)
    assert take(tx) is True


def test_a_sample_counts_what_waits_and_runs(tx: Connection, clock: Clock) -> None:
    for _ in range(3):
        enqueue(tx, "counted.one")
    enqueue(tx, "counted.later", run_at=clock.now + timedelta(hours=1))
    clock.advance(2)
    claim_one(tx, queues=["counted"])
    take(tx)
    [sample] = rows(tx, "select due, scheduled, running, delay_p50, delay_p99 from queues.sample")
    assert sample == {"due": 2, "scheduled": 1, "running": 1, "delay_p50": 2.0, "delay_p99": 2.0}


def test_the_leader_does_not_count_tasks_and_a_server_adds_their_number(tx: Connection, clock: Clock) -> None:
    del clock
    enqueue(tx, "counted.one")
    assert [take(tx, count_tasks=False) for _ in range(2)] == [True, False]
    [sample] = rows(tx, "select bytes > 100000 as large, due from queues.sample")
    assert sample == {"large": True, "due": None}

    assert take(tx) is True
    assert (take(tx), take(tx, count_tasks=False)) == (False, False)
    assert value(tx, "select due from queues.sample") == 1


def test_tasks_are_counted_at_most_for_a_fiftieth_of_the_time(tx: Connection, clock: Clock) -> None:
    take(tx)
    tx.execute("update queues.sample set counting = '3s'")  # as with ten million waiting tasks
    for _ in range(15):
        clock.advance(10)
        assert take(tx) is True
    counted = [
        row["counted"]
        for row in rows(tx, "select due is not null as counted from queues.sample order by taken_at")
    ]
    assert counted == [True, *[False] * 14, True]


def test_old_samples_are_forgotten(tx: Connection, clock: Clock) -> None:
    take(tx)
    clock.advance(3 * 86400)
    take(tx)
    assert value(tx, "select count(*) from queues.sample") == 1


def test_activity_tells_rates_from_one_sample_to_the_next(db: Database) -> None:
    conn = db.connect()
    clock = Clock(conn)
    take(conn)
    for _ in range(20):
        enqueue(conn, "paced.one")
    end(conn, claim_one(conn, queues=["paced"]))
    conn.execute("select pg_stat_force_next_flush()")
    clock.advance(10)
    take(conn)
    clock.advance(10)
    found = call(conn, "queues.list_activity", {"since": timedelta(minutes=5), "step": timedelta(seconds=10)})
    assert found[0]["enqueued_per_second"] is None, "nothing to compare the first one with"
    assert (found[1]["enqueued_per_second"], found[1]["finished_per_second"]) == (2.0, 0.1)
    assert found[1]["due"] == 19


def test_statistics_that_began_anew_are_no_negative_rate(tx: Connection, clock: Clock) -> None:
    insert = """insert into queues.sample (taken_at, due, scheduled, running, enqueued_total, finished_total,
      errors_total, transaction_id, bytes) values (%s, 0, 0, 0, %s, 0, 0, '1', 0)"""
    tx.execute(insert, [clock.now - timedelta(seconds=20), 500])
    tx.execute(insert, [clock.now - timedelta(seconds=10), 3])
    tx.execute(insert, [clock.now, 13])
    found = call(tx, "queues.list_activity", {"since": timedelta(minutes=5), "step": timedelta(seconds=10)})
    assert [row["enqueued_per_second"] for row in found] == [None, None, 1.0]


@pytest.mark.parametrize(
    "arguments",
    [
        {"since": timedelta(seconds=1)},
        {"since": timedelta(days=3)},
        {"since": None},
        {"step": timedelta(seconds=1)},
        {"step": None},
    ],
)
def test_a_step_that_cannot_be_meant_is_refused(tx: Connection, arguments: dict[str, Any]) -> None:
    with refused(tx, "QF400", next(iter(arguments))):
        call(tx, "queues.list_activity", arguments)
