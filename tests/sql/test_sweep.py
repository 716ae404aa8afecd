"""queues.sweep: what a silent worker held goes back to ready, or ends as a dead letter."""

from typing import Any

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    act,
    claim,
    claim_one,
    counts,
    enqueue,
    enqueue_many,
    heartbeat,
    held,
    refused,
    rows,
    status,
    sweep,
)
from support.invariant import assert_invariant
from support.sessions import at_once


def test_an_expired_lease_goes_back_to_ready_with_its_attempt_counted(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, max_attempts=2)
    claim(tx)
    clock.advance(31)

    assert sweep(tx) == {"recovered": 1, "dead": 0}

    task = status(tx, task_id)
    assert (task["status"], task["attempt"], task["run_at"]) == ("retrying", 1, clock.now)
    assert claim_one(tx, "w2")["attempt"] == 2


def test_a_lease_is_not_expired_until_it_is_over(tx: Connection, clock: Clock) -> None:
    enqueue(tx)
    claim(tx)
    clock.advance(30)

    assert sweep(tx) == {"recovered": 0, "dead": 0}


def test_of_two_leases_only_the_one_that_has_ended_is_taken(tx: Connection, clock: Clock) -> None:
    ended, other = enqueue(tx), enqueue(tx)
    claim(tx, lease="10 seconds")
    claim(tx, lease="1 hour")
    clock.advance(11)

    assert sweep(tx) == {"recovered": 1, "dead": 0}
    assert (status(tx, ended)["status"], status(tx, other)["status"]) == ("retrying", "claimed")


def test_more_ended_leases_than_asked_are_left_for_the_next_sweep(tx: Connection, clock: Clock) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 5)
    claim(tx, max_tasks=5)
    clock.advance(31)

    assert [sweep(tx, max_tasks=2)["recovered"] for _ in range(4)] == [2, 2, 1, 0]


def test_a_lease_that_is_kept_alive_is_left_alone(tx: Connection, clock: Clock) -> None:
    enqueue(tx)
    task = claim_one(tx)
    for _ in range(5):
        clock.advance(20)
        heartbeat(tx, held(task))

    assert sweep(tx) == {"recovered": 0, "dead": 0}


def test_after_the_last_attempt_it_is_a_dead_letter(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, max_attempts=1)
    claim(tx)
    clock.advance(31)

    assert sweep(tx) == {"recovered": 0, "dead": 1}

    task = status(tx, task_id)
    assert (task["status"], task["reason"], task["worker_id"]) == ("dead_letter", "lease_expired", "w1")
    assert task["finished_at"] == clock.now


def test_a_task_that_kills_every_worker_ends(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, max_attempts=3)
    attempts = []
    while claimed := claim(tx):
        attempts += [task["attempt"] for task in claimed]
        clock.advance(31)
        sweep(tx)

    assert attempts == [1, 2, 3]
    assert status(tx, task_id)["status"] == "dead_letter"


@pytest.mark.parametrize("max_attempts", [1, 2])
def test_every_lease_that_ended_is_recorded_as_an_error(
    tx: Connection, clock: Clock, max_attempts: int
) -> None:
    enqueue(tx, max_attempts=max_attempts)
    task = claim_one(tx, "worker-7")
    clock.advance(31)

    sweep(tx)

    (error,) = rows(tx, "select * from queues.task_error")
    assert (error["kind"], error["recovered"], error["attempt"]) == ("lease_expired", True, 1)
    assert (error["worker_id"], error["occurred_at"]) == ("worker-7", clock.now)
    assert error["retry_at"] == (None if max_attempts == 1 else clock.now)
    assert "worker-7" in error["message"]
    assert task["task_id"] == error["task_id"]


def test_it_takes_the_oldest_first_and_no_more_than_it_may(tx: Connection, clock: Clock) -> None:
    ids = [row["task_id"] for row in enqueue_many(tx, [{"type": "default.work"}] * 5)]
    for _ in ids:
        claim(tx)
        clock.advance(1)
    clock.advance(60)

    assert sweep(tx, max_tasks=2) == {"recovered": 2, "dead": 0}
    assert [status(tx, task_id)["status"] for task_id in ids] == ["retrying"] * 2 + ["claimed"] * 3
    assert sweep(tx, max_tasks=9) == {"recovered": 3, "dead": 0}


def test_a_task_deleted_while_it_ran_is_parked(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    claim(tx)
    act(tx, "delete_task", task_id)
    clock.advance(31)

    assert sweep(tx) == {"recovered": 1, "dead": 0}
    assert claim(tx) == []
    assert act(tx, "restore_task", task_id) == "retrying"


def test_it_skips_a_lease_that_another_session_is_settling(db: Database) -> None:
    admin = db.connect()
    clock = Clock(admin)
    enqueue_many(admin, [{"type": "default.work"}] * 2)
    one, _ = claim(admin, max_tasks=2)
    clock.advance(31)
    worker = db.connect("holdfast_worker", autocommit=False)
    heartbeat(worker, held(one))
    admin.execute("set lock_timeout = '5s'")

    assert sweep(admin) == {"recovered": 1, "dead": 0}
    worker.commit()
    assert sweep(admin) == {"recovered": 0, "dead": 0}


def test_sweepers_at_once_recover_each_task_once(db: Database) -> None:
    admin = db.connect()
    clock = Clock(admin)
    enqueue_many(admin, [{"type": "default.work", "max_attempts": n % 2 + 1} for n in range(200)])
    claim(admin, max_tasks=200)
    clock.advance(31)

    swept = at_once(sweep, [db.connect("holdfast_worker") for _ in range(6)])

    assert sum(each["recovered"] for each in swept) == sum(each["dead"] for each in swept) == 100
    assert counts(admin)["error"] == 200
    assert_invariant(admin)


@pytest.mark.parametrize("max_tasks", [None, 0, -1, 10_001])
def test_a_limit_that_cannot_be_meant_is_refused(tx: Connection, max_tasks: Any) -> None:
    with refused(tx, "QF400", "max_tasks"):
        sweep(tx, max_tasks=max_tasks)
