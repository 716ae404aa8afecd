"""queues.recover_workers: a worker that is silent for too long is removed, and others get what it held."""

from typing import Any

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    act,
    call,
    claim,
    claim_one,
    counts,
    end,
    enqueue,
    enqueue_many,
    heartbeat,
    held,
    recover_workers,
    refused,
    rows,
    status,
    sweep,
    value,
)
from support.invariant import assert_invariant
from support.sessions import at_once


def register(conn: Connection, worker_id: str = "w1", timeout: str = "10 seconds", **arguments: Any) -> None:
    call(conn, "queues.register_worker", {"worker_id": worker_id, "timeout": timeout, **arguments})


def fleet(conn: Connection) -> list[str]:
    return [row["worker_id"] for row in rows(conn, "select worker_id from queues.worker_status order by 1")]


def test_what_a_silent_worker_held_goes_back_before_its_lease_ends(tx: Connection, clock: Clock) -> None:
    register(tx)
    task_id = enqueue(tx)
    claim(tx)
    silent_since = clock.now
    clock.advance(10.001)

    assert recover_workers(tx) == [
        {"worker_id": "w1", "last_heartbeat": silent_since, "recovered": 1, "dead": 0, "removed": True}
    ]

    task = status(tx, task_id)
    assert (task["status"], task["attempt"], task["run_at"]) == ("retrying", 1, clock.now)
    assert claim_one(tx, "w2")["attempt"] == 2
    assert fleet(tx) == []


def test_a_worker_that_beats_is_left_alone(tx: Connection, clock: Clock) -> None:
    register(tx)
    enqueue(tx)
    task = claim_one(tx)
    for _ in range(3):
        clock.advance(10)
        assert recover_workers(tx) == []
        assert heartbeat(tx, held(task)) == ["held"]


def test_each_worker_has_the_timeout_that_it_registered_with(tx: Connection, clock: Clock) -> None:
    register(tx, "hasty", "10 seconds")
    register(tx, "calm", "1 hour")
    clock.advance(60)

    assert [lost["worker_id"] for lost in recover_workers(tx)] == ["hasty"]
    assert fleet(tx) == ["calm"]


def test_what_others_hold_is_not_touched(tx: Connection, clock: Clock) -> None:
    register(tx, "w1")
    enqueue_many(tx, [{"type": "default.work"}] * 3)
    claim(tx, "w1")
    others = [claim_one(tx, "w2"), claim_one(tx, "unregistered")]
    clock.advance(11)
    register(tx, "w2")

    (lost,) = recover_workers(tx)

    assert lost["recovered"] == 1
    assert end(tx, others[0], worker_id="w2") == end(tx, others[1], worker_id="unregistered") == "accepted"


def test_after_the_last_attempt_it_is_a_dead_letter(tx: Connection, clock: Clock) -> None:
    register(tx)
    task_id = enqueue(tx, max_attempts=1)
    claim(tx)
    clock.advance(11)

    (lost,) = recover_workers(tx)

    assert (lost["recovered"], lost["dead"]) == (0, 1)
    task = status(tx, task_id)
    assert (task["status"], task["reason"], task["worker_id"]) == ("dead_letter", "lease_expired", "w1")


def test_an_error_says_that_the_worker_was_silent_and_since_when(tx: Connection, clock: Clock) -> None:
    register(tx, "worker-7")
    enqueue(tx)
    claim(tx, "worker-7")
    since = value(tx, "select last_heartbeat::text from queues.worker_status")
    clock.advance(11)

    recover_workers(tx)

    (error,) = rows(tx, "select * from queues.task_error")
    assert (error["kind"], error["recovered"], error["worker_id"]) == ("worker_lost", True, "worker-7")
    assert error["message"] == f"worker worker-7 was silent since {since} and counts as dead"


def test_a_worker_that_was_only_slow_has_lost_its_tokens_and_may_register_again(
    tx: Connection, clock: Clock
) -> None:
    register(tx)
    enqueue(tx)
    task = claim_one(tx)
    clock.advance(11)
    recover_workers(tx)

    assert heartbeat(tx, held(task)) == ["lost"]
    assert end(tx, task) == "lost"
    assert call(tx, "queues.fleet_state", {"worker_id": "w1"})[0]["registered"] is False
    register(tx)
    assert fleet(tx) == ["w1"]


def test_a_task_deleted_while_it_ran_is_parked(tx: Connection, clock: Clock) -> None:
    register(tx)
    task_id = enqueue(tx)
    claim(tx)
    act(tx, "delete_task", task_id)
    clock.advance(11)

    recover_workers(tx)

    assert claim(tx, "w2") == []
    assert act(tx, "restore_task", task_id) == "retrying"


def test_a_worker_that_held_nothing_is_removed_and_remembered(tx: Connection, clock: Clock) -> None:
    register(tx, hostname="node-3", pid=4711)
    started_at = clock.now
    clock.advance(11)

    recover_workers(tx)

    assert rows(tx, "select * from queues.worker_loss") == [
        {
            "worker_id": "w1",
            "hostname": "node-3",
            "pid": 4711,
            "started_at": started_at,
            "last_heartbeat": started_at,
            "lost_at": clock.now,
            "recovered": 0,
            "dead": 0,
        }
    ]


def test_no_call_takes_more_than_it_may_and_the_loss_is_remembered_once(tx: Connection, clock: Clock) -> None:
    register(tx)
    enqueue_many(tx, [{"type": "default.work", "max_attempts": n % 2 + 1} for n in range(5)])
    claim(tx, max_tasks=5)
    clock.advance(11)

    steps = [recover_workers(tx, max_tasks=2)[0] for _ in range(3)]

    assert [step["recovered"] + step["dead"] for step in steps] == [2, 2, 1]
    assert [step["removed"] for step in steps] == [False, False, True]
    assert rows(tx, "select recovered, dead from queues.worker_loss") == [{"recovered": 2, "dead": 3}]
    assert recover_workers(tx) == []


def test_a_second_silence_of_the_same_worker_is_a_second_loss(tx: Connection, clock: Clock) -> None:
    for _ in range(2):
        register(tx)
        clock.advance(11)
        recover_workers(tx)

    assert value(tx, "select count(*) from queues.worker_loss") == 2


def test_a_whole_rack_is_recovered_in_steps(tx: Connection, clock: Clock) -> None:
    for number in range(45):
        register(tx, f"w{number}")
    clock.advance(11)

    assert [len(recover_workers(tx)) for _ in range(4)] == [20, 20, 5, 0]


def test_it_does_not_wait_for_a_worker_that_beats_just_now(db: Database) -> None:
    admin = db.connect()
    clock = Clock(admin)
    register(admin)
    enqueue(admin)
    task = claim_one(admin)
    clock.advance(11)
    worker = db.connect("holdfast_worker", autocommit=False)
    heartbeat(worker, held(task))

    assert recover_workers(admin) == []
    worker.commit()
    assert recover_workers(admin) == []
    assert end(admin, task) == "accepted"


def test_it_does_not_wait_for_a_lease_that_another_session_has_locked(db: Database) -> None:
    admin = db.connect()
    clock = Clock(admin)
    register(admin)
    enqueue_many(admin, [{"type": "default.work"}] * 2)
    one, _ = claim(admin, max_tasks=2)
    clock.advance(11)
    other = db.connect("holdfast_operator", autocommit=False)
    act(other, "cancel", one["task_id"])

    (lost,) = recover_workers(admin)
    assert (lost["recovered"], lost["removed"]) == (1, False)
    assert recover_workers(admin) == []
    other.rollback()
    (lost,) = recover_workers(admin)
    assert (lost["recovered"], lost["removed"]) == (1, True)
    assert rows(admin, "select recovered from queues.worker_loss") == [{"recovered": 2}]
    assert_invariant(admin)


def test_leaders_at_once_recover_each_task_once(db: Database) -> None:
    admin = db.connect()
    clock = Clock(admin)
    for number in range(8):
        register(admin, f"w{number}")
    enqueue_many(admin, [{"type": "default.work", "max_attempts": n % 2 + 1} for n in range(200)])
    for number in range(8):
        claim(admin, f"w{number}", max_tasks=25)
    clock.advance(31)

    sessions = [db.connect("holdfast_worker") for _ in range(6)]
    found = at_once(lambda conn: [*recover_workers(conn), sweep(conn)], sessions)

    lost = [row for answers in found for row in answers]
    assert sum(row["recovered"] for row in lost) == sum(row["dead"] for row in lost) == 100
    assert counts(admin)["error"] == 200
    recover_workers(admin)  # those of whose leases a sweep had one locked
    assert fleet(admin) == []
    assert_invariant(admin)


@pytest.mark.parametrize("max_tasks", [None, 0, -1, 10_001])
def test_a_limit_that_cannot_be_meant_is_refused(tx: Connection, max_tasks: int | None) -> None:
    with refused(tx, "QF400", "max_tasks"):
        recover_workers(tx, max_tasks=max_tasks)
