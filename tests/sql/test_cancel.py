"""queues.cancel: ends what has not ended; the canceller owns the status."""

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    act,
    claim,
    claim_one,
    counts,
    end,
    enqueue,
    events,
    heartbeat,
    held,
    refused,
    status,
)
from support.sessions import in_background, wait_until_blocked

UNKNOWN = "00000000-0000-7000-8000-000000000000"


def test_a_waiting_task_is_cancelled_and_never_claimed(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)

    assert act(tx, "cancel", task_id, reason="a mistake") == "cancelled"

    task = status(tx, task_id)
    assert (task["status"], task["reason"], task["finished_at"]) == ("cancelled", "a mistake", clock.now)
    assert (task["attempt"], task["worker_id"]) == (0, None)
    assert claim(tx) == []


def test_a_running_task_is_cancelled_at_once_and_its_worker_learns_of_it(
    tx: Connection, clock: Clock
) -> None:
    task_id = enqueue(tx)
    task = claim_one(tx)
    heartbeat(tx, held(task, started_at=clock.now))

    assert act(tx, "cancel", task_id) == "cancelled"

    assert status(tx, task_id)["status"] == "cancelled"
    assert status(tx, task_id)["worker_id"] == "w1"
    assert heartbeat(tx, held(task)) == ["cancelled"]


@pytest.mark.parametrize(("ending", "answer"), [("succeeded", "succeeded"), ("failed", "failed")])
def test_a_task_that_ended_is_left_as_it_is(tx: Connection, ending: str, answer: str) -> None:
    task_id = enqueue(tx)
    end(tx, claim_one(tx), ending)
    before = counts(tx)

    assert act(tx, "cancel", task_id) == answer
    assert counts(tx) == before


def test_repeating_it_gives_the_same_answer_and_keeps_the_first_reason(tx: Connection) -> None:
    task_id = enqueue(tx)
    act(tx, "cancel", task_id, reason="first")
    before = counts(tx)

    assert act(tx, "cancel", task_id, reason="second") == "cancelled"
    assert status(tx, task_id)["reason"] == "first"
    assert counts(tx) == before


def test_a_parked_task_is_cancelled_and_stays_deleted(tx: Connection) -> None:
    task_id = enqueue(tx)
    act(tx, "delete_task", task_id)

    assert act(tx, "cancel", task_id) == "cancelled"
    assert status(tx, task_id)["deleted_at"] is not None
    assert act(tx, "restore_task", task_id) == "cancelled"


def test_actor_and_reason_are_recorded(tx: Connection) -> None:
    task_id = enqueue(tx)
    act(tx, "cancel", task_id, reason="a mistake")

    event = events(tx, task_id)[-1]
    assert (event["event_type"], event["actor"], event["reason"]) == (
        "cancelled",
        tx.info.user,
        "a mistake",
    )


@pytest.mark.parametrize("task_id", [UNKNOWN, None])
def test_an_unknown_task_is_refused(tx: Connection, task_id: str | None) -> None:
    with refused(tx, "QF404", "there is no task"):
        act(tx, "cancel", task_id)


def test_a_cancel_that_waits_for_a_finish_finds_the_task_ended(db: Database) -> None:
    worker = db.connect("holdfast_worker", autocommit=False)
    operator = db.connect("holdfast_operator")
    task_id = enqueue(db.connect())
    task = claim_one(worker)
    worker.commit()
    end(worker, task)

    with in_background(lambda: act(operator, "cancel", task_id)) as cancelling:
        wait_until_blocked(db.connect(), operator)
        worker.commit()

    assert cancelling.result() == "succeeded"


def test_a_cancel_that_waits_for_a_claim_takes_the_task_from_its_worker(db: Database) -> None:
    worker = db.connect("holdfast_worker", autocommit=False)
    operator = db.connect("holdfast_operator")
    task_id = enqueue(db.connect())
    task = claim_one(worker)

    with in_background(lambda: act(operator, "cancel", task_id)) as cancelling:
        wait_until_blocked(db.connect(), operator)
        worker.commit()

    assert cancelling.result() == "cancelled"
    assert end(worker, task) == "cancelled"
