"""The view queues.task_status: where every task stands, each column derived."""

from typing import Any

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    act,
    claim,
    claim_one,
    end,
    enqueue,
    heartbeat,
    held,
    release,
    status,
    sweep,
    value,
)

CONTRACT = [
    *("task_id", "type", "queue", "executor", "status", "priority", "payload", "result", "error"),
    *("last_error", "idempotency_key", "spec_hash", "attempt", "max_attempts", "run_at", "worker_id"),
    *("lease_until", "created_at", "claimed_at", "started_at", "finished_at", "updated_at", "deleted_at"),
    "delete_reason",
]


def test_its_columns_are_those_of_the_contract_then_our_own(tx: Connection) -> None:
    columns = list(status(tx, enqueue(tx)))

    assert columns[: len(CONTRACT)] == CONTRACT
    assert columns[len(CONTRACT) :] == [
        *("reason", "progress", "timeout", "lease", "metadata", "enqueued_by"),
        *("namespace", "concurrency_key", "deadline", "cancelled_by", "generation"),
    ]


def test_a_scheduled_task_becomes_pending_as_time_goes_by(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, run_at=clock.after(1))
    assert status(tx, task_id)["status"] == "scheduled"

    clock.advance(1)
    assert status(tx, task_id)["status"] == "pending"


def test_a_waiting_task_has_no_worker_and_no_lease(tx: Connection, clock: Clock) -> None:
    task = status(tx, enqueue(tx))

    for column in ("worker_id", "lease_until", "claimed_at", "started_at", "finished_at", "result", "error"):
        assert task[column] is None, column


def test_claimed_then_running(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    claimed_at = clock.advance(1)
    task = claim_one(tx)
    assert status(tx, task_id)["status"] == "claimed"

    started_at = clock.advance(1)
    heartbeat(tx, held(task, started_at=started_at))

    now = status(tx, task_id)
    assert (now["status"], now["claimed_at"], now["started_at"]) == ("running", claimed_at, started_at)
    assert (now["worker_id"], now["lease_until"], now["attempt"]) == ("w1", clock.after(30), 1)


def test_after_a_retry_it_shows_the_last_error_and_no_worker(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    end(tx, claim_one(tx), "retry", error={"kind": "Timeout", "message": "slow"}, run_at=clock.after(9))

    now = status(tx, task_id)
    assert (now["status"], now["run_at"], now["attempt"]) == ("retrying", clock.after(9), 1)
    assert (now["last_error"], now["worker_id"], now["claimed_at"]) == ("slow", None, None)
    assert now["error"] == {
        "kind": "Timeout",
        "message": "slow",
        "attempt": 1,
        "occurred_at": value(tx, "select to_jsonb(%s::timestamptz) #>> '{}'", [clock.now]),
        "worker_id": "w1",
        "detail": {"kind": "Timeout", "message": "slow"},
    }


def test_the_newest_of_several_errors_is_shown(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    for message in ("first", "second"):
        end(tx, claim_one(tx), "retry", error=message, run_at=clock.now)

    assert status(tx, task_id)["last_error"] == "second"


def test_an_error_is_still_shown_after_a_later_success(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    end(tx, claim_one(tx), "retry", error="first", run_at=clock.now)
    end(tx, claim_one(tx), "succeeded", result=7)

    now = status(tx, task_id)
    assert (now["status"], now["result"], now["last_error"], now["attempt"]) == ("succeeded", 7, "first", 2)


def test_a_deleted_task_keeps_its_status_and_its_time(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, run_at=clock.after(60))
    act(tx, "delete_task", task_id, reason="spam")

    now = status(tx, task_id)
    assert (now["status"], now["run_at"], now["attempt"]) == ("scheduled", clock.after(60), 0)
    assert (now["deleted_at"], now["delete_reason"]) == (clock.now, "spam")


def test_run_at_is_the_time_it_was_last_due(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, run_at=clock.after(5))
    act(tx, "reschedule", task_id, run_at=clock.after(1))
    clock.advance(1)
    claim(tx)

    assert status(tx, task_id)["run_at"] == clock.now


def _step(tx: Connection, task_id: Any, step: str, clock: Clock) -> None:
    """One thing that happens to a task. To fall is to ask for another attempt; people retry."""
    if step in {"cancel", "delete_task", "restore_task", "retry"}:
        act(tx, step, task_id)
    elif step == "reschedule":
        act(tx, step, task_id, run_at=clock.now)
    elif step == "sweep":
        claim(tx)
        clock.advance(31)
        sweep(tx)
    elif step == "claim":
        claim(tx)
    elif step == "start":
        heartbeat(tx, held(claim_one(tx), started_at=clock.advance(1)))
    elif step == "release":
        task = claim_one(tx)
        clock.advance(1)
        release(tx, held(task))
    else:
        task = claim_one(tx)
        clock.advance(1)
        end(tx, task, "retry" if step == "fall" else step, run_at=clock.now)


@pytest.mark.parametrize(
    "course",
    [
        ["claim"],
        ["start"],
        ["release", "claim"],
        ["snooze", "release"],
        ["fall", "succeeded"],
        ["fall", "sweep", "failed", "retry"],
        ["failed", "delete_task", "restore_task", "retry"],
        ["reschedule", "cancel", "retry", "claim"],
        ["delete_task", "cancel", "restore_task"],
        ["cancelled", "retry", "sweep"],
    ],
)
def test_updated_at_is_when_the_last_thing_happened(tx: Connection, clock: Clock, course: list[str]) -> None:
    task_id = enqueue(tx, max_attempts=9)
    assert status(tx, task_id)["updated_at"] == clock.now

    for step in course:
        clock.advance(10)
        _step(tx, task_id, step, clock)
        assert status(tx, task_id)["updated_at"] == clock.now, step


def test_updated_at_is_never_before_created_at(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    clock.advance(-60)

    assert status(tx, task_id)["updated_at"] == status(tx, task_id)["created_at"]
