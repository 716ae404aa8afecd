"""What queues.health says of workers: silent, late and lost ones, expired leases, and the leader."""

import pytest

from support.clock import Clock
from support.engine import Connection, answer, call, claim, claim_one, enqueue, enqueue_many, value
from support.health import checks, level, line, register


def test_a_worker_that_is_silent_serves_nobody(tx: Connection, clock: Clock) -> None:
    register(tx, queues=["mail"])
    clock.advance(61)
    enqueue(tx, "mail.send")
    clock.advance(10)

    assert level(tx, "unserved", "mail") == "amber"
    found = line(tx, "silent_worker", "w1")
    assert (found["level"], found["value"]) == ("red", 71)
    assert "0 live workers" in line(tx, "workers")["message"]


@pytest.mark.parametrize(("late", "expected"), [(5, "green"), (10, "amber"), (60, "red")])
def test_leases_that_nobody_sweeps(tx: Connection, clock: Clock, late: float, expected: str) -> None:
    enqueue(tx)
    claim_one(tx, lease="30 seconds")
    clock.advance(30 + late)

    found = line(tx, "expired_leases")
    assert (found["level"], found["value"]) == (expected, 1)


def test_a_worker_that_was_lost(tx: Connection, clock: Clock) -> None:
    register(tx)
    enqueue(tx)
    claim_one(tx, lease="1 hour")
    clock.advance(61)
    call(tx, "queues.recover_workers", {})

    found = line(tx, "lost_worker", "w1")
    assert (found["level"], "1 of its tasks went back" in found["message"]) == ("amber", True)
    assert "silent_worker" not in checks(tx)
    clock.advance(3601)
    assert "lost_worker" not in checks(tx)


def test_a_lost_worker_is_told_of_with_what_a_sweep_had_put_back_before(tx: Connection, clock: Clock) -> None:
    register(tx)
    enqueue_many(tx, [{"type": "default.work", "max_attempts": 1}, *[{"type": "default.work"}] * 3])
    claim(tx, "w1", max_tasks=3, lease="10 seconds")
    claim(tx, "w1", max_tasks=1, lease="1 hour")
    for _ in range(13):
        clock.advance(5)
        call(tx, "queues.sweep", {})
    call(tx, "queues.recover_workers", {})

    told = line(tx, "lost_worker", "w1")["message"]
    assert "3 of its tasks went back to the queue, and 1 ended" in told


def test_a_worker_whose_heartbeats_stop_is_late_long_before_it_counts_as_dead(
    tx: Connection, clock: Clock
) -> None:
    register(tx, heartbeat="10 seconds")
    states = []
    for seconds in (20, 1, 38, 1):
        clock.advance(seconds)
        states.append(value(tx, "select state from queues.worker_status"))
        assert ("late_worker" in checks(tx)) == (states[-1] == "late")
    assert states == ["idle", "late", "late", "silent"]


def test_a_fleet_without_a_leader(tx: Connection, clock: Clock) -> None:
    register(tx)
    assert level(tx, "leader") == "amber"

    answer(tx, "queues.lead", {"worker_id": "w1"})
    assert "leader" not in checks(tx)
