"""queues.sweep: what a silent worker held goes back to ready, or ends as a dead letter."""

from typing import Any

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    Row,
    act,
    call,
    claim,
    claim_one,
    counts,
    enqueue,
    enqueue_many,
    heartbeat,
    held,
    recover_workers,
    refused,
    rows,
    status,
    sweep,
)
from support.health import register
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


def test_a_task_that_its_living_worker_had_not_begun_keeps_its_attempt(tx: Connection, clock: Clock) -> None:
    """The answer of the claim was lost or late, or the task could not be given back."""
    task_id = enqueue(tx, max_attempts=1)
    run_at = status(tx, task_id)["run_at"]
    register(tx)
    claim(tx)
    clock.advance(31)
    heartbeat(tx, [])

    assert sweep(tx) == {"recovered": 1, "dead": 0}

    task = status(tx, task_id)
    assert (task["status"], task["attempt"], task["run_at"]) == ("pending", 0, run_at)
    assert rows(tx, "select from queues.error where task_id = %s", [task_id]) == []
    assert claim_one(tx, "w2")["attempt"] == 1


def test_a_lease_that_may_not_have_begun_waits_for_the_next_word_of_its_worker(
    tx: Connection, clock: Clock
) -> None:
    enqueue(tx, max_attempts=1)
    register(tx)
    claim(tx, lease="10 seconds")
    clock.advance(9)
    heartbeat(tx, [])
    clock.advance(2)
    assert sweep(tx) == {"recovered": 0, "dead": 0}

    heartbeat(tx, [])
    assert sweep(tx) == {"recovered": 1, "dead": 0}


def test_a_worker_that_is_late_has_used_up_the_attempt(tx: Connection, clock: Clock) -> None:
    """It may have begun the task after its last heartbeat."""
    task_id = enqueue(tx, max_attempts=1)
    register(tx)
    claim(tx)
    clock.advance(9)
    heartbeat(tx, [])
    clock.advance(22)

    assert sweep(tx) == {"recovered": 0, "dead": 1}
    assert status(tx, task_id)["status"] == "dead_letter"


def sweep_for(tx: Connection, clock: Clock, seconds: int) -> list[Row]:
    """As workers do, every second."""
    swept = []
    for _ in range(seconds):
        clock.advance(1)
        swept.append(sweep(tx))
    return swept


NOTHING = {"recovered": 0, "dead": 0}


def test_after_an_outage_a_worker_that_comes_back_keeps_the_attempts_of_what_it_had_not_begun(
    tx: Connection, clock: Clock
) -> None:
    """It was away for longer than leases and its timeout, and another worker came back before it."""
    enqueue(tx, max_attempts=1)
    register(tx, timeout="30 seconds")
    claim(tx)
    sweep_for(tx, clock, 2)
    clock.advance(120)

    assert sweep(tx) == NOTHING
    assert recover_workers(tx) == []
    assert sweep_for(tx, clock, 19) == [NOTHING] * 19
    heartbeat(tx, [])
    assert sweep(tx) == {"recovered": 1, "dead": 0}
    assert claim_one(tx, "w2")["attempt"] == 1


@pytest.mark.parametrize("after_a_crash", [True, False])
def test_after_an_outage_a_worker_that_does_not_come_back_is_late_after_two_heartbeats(
    tx: Connection, clock: Clock, after_a_crash: bool
) -> None:
    enqueue(tx, max_attempts=1)
    register(tx, timeout="30 seconds")
    claim(tx)
    sweep_for(tx, clock, 2)
    clock.advance(120)
    if after_a_crash:
        tx.execute("delete from queues.last_sweep")  # unlogged

    assert sweep(tx) == NOTHING
    assert sweep_for(tx, clock, 20) == [NOTHING] * 19 + [{"recovered": 0, "dead": 1}]
    clock.advance(1)
    assert [lost["worker_id"] for lost in recover_workers(tx)] == ["w1"]


def test_where_sweeps_are_rare_a_worker_that_is_silent_is_late(tx: Connection, clock: Clock) -> None:
    enqueue(tx, max_attempts=1)
    register(tx)
    claim(tx)
    swept = []
    for _ in range(4):
        clock.advance(60)
        swept.append(sweep(tx)["dead"])
    assert sum(swept) == 1


def test_a_task_that_had_begun_has_used_up_its_attempt_although_its_worker_lives(
    tx: Connection, clock: Clock
) -> None:
    enqueue(tx, max_attempts=1)
    register(tx)
    task = claim_one(tx)
    heartbeat(tx, held(task, started_at=clock.now.isoformat()))
    clock.advance(31)
    heartbeat(tx, [])

    assert sweep(tx) == {"recovered": 0, "dead": 1}


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("queues.heartbeat", {"held": [], "complete": False}),
        ("queues.rest", {"holding": True}),
    ],
)
def test_a_word_that_does_not_list_what_has_begun_gives_no_attempt_back(
    tx: Connection, clock: Clock, function: str, arguments: dict[str, Any]
) -> None:
    enqueue(tx, max_attempts=1)
    register(tx)
    claim(tx)
    clock.advance(31)
    call(tx, function, {"worker_id": "w1", **arguments})
    clock.advance(21)

    assert sweep(tx) == {"recovered": 0, "dead": 1}


def test_a_worker_that_rests_with_nothing_in_its_hands_has_begun_nothing(
    tx: Connection, clock: Clock
) -> None:
    enqueue(tx, max_attempts=1)
    register(tx)
    claim(tx)
    clock.advance(31)
    call(tx, "queues.rest", {"worker_id": "w1", "holding": False})

    assert sweep(tx) == {"recovered": 1, "dead": 0}


def test_a_task_that_has_begun_and_is_locked_is_not_taken_for_one_that_has_not(db: Database) -> None:
    """The heartbeat could not write down that it has begun."""
    admin, worker, other = db.connect(), db.connect(), db.connect(autocommit=False)
    task_id = enqueue(admin, max_attempts=1)
    register(admin)
    task = claim_one(admin, lease="1 second")
    other.execute("select from queues.lease where task_id = %s for update", [task_id])
    wait_until_ended(admin, task_id)
    begun = held(task, started_at="2026-01-01T00:00:00Z")
    assert heartbeat(worker, begun) == ["busy"]
    other.rollback()

    assert sweep(admin) == {"recovered": 0, "dead": 0}
    assert heartbeat(worker, begun) == ["held"]


def wait_until_ended(conn: Connection, task_id: Any) -> None:
    """Until its lease is over."""
    left = "select pg_sleep(extract(epoch from l.lease_until - queues.clock()) + 0.01) from queues.lease l"
    conn.execute(f"{left} where l.task_id = %s".encode(), [task_id])


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


def test_a_lease_beside_an_outcome_does_not_stop_the_others(tx: Connection, clock: Clock) -> None:
    """Which only a repair by hand can leave."""
    ended, other = enqueue(tx), enqueue(tx)
    claim(tx, max_tasks=2)
    tx.execute(
        "insert into queues.outcome (task_id, finished_at, attempt, status) values (%s, now(), 1, 'failed')",
        [ended],
    )
    clock.advance(31)

    assert sweep(tx) == {"recovered": 1, "dead": 0}
    assert (status(tx, ended)["status"], status(tx, other)["status"]) == ("failed", "retrying")
    assert rows(tx, "select from queues.lease") == []


def test_a_sweep_remembers_when_it_was_also_after_a_crash(tx: Connection, clock: Clock) -> None:
    tx.execute("delete from queues.last_sweep")  # unlogged: a crash empties it
    sweep(tx)
    assert rows(tx, "select swept_at from queues.last_sweep") == [{"swept_at": clock.now}]
