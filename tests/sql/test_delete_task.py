"""queues.delete_task and queues.restore_task: soft, with a reason, and undone without a trace left behind."""

import psycopg
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


def test_a_waiting_task_is_never_claimed(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)

    assert act(tx, "delete_task", task_id, reason="spam") == "deleted"

    task = status(tx, task_id)
    assert (task["status"], task["deleted_at"], task["delete_reason"]) == ("pending", clock.now, "spam")
    assert claim(tx) == []


@pytest.mark.parametrize("ending", ["succeeded", "failed", "cancelled"])
def test_a_task_that_ended_keeps_its_status_and_result(tx: Connection, ending: str) -> None:
    task_id = enqueue(tx)
    end(tx, claim_one(tx), ending, result=7)

    assert act(tx, "delete_task", task_id) == "deleted"
    assert (status(tx, task_id)["status"], status(tx, task_id)["result"]) == (ending, 7)


def test_a_running_task_may_still_end_and_its_worker_is_told(tx: Connection) -> None:
    task_id = enqueue(tx)
    task = claim_one(tx)

    act(tx, "delete_task", task_id)

    assert heartbeat(tx, held(task)) == ["deleted"]
    assert end(tx, task) == "accepted"
    assert status(tx, task_id)["status"] == "succeeded"


def test_repeating_it_gives_the_same_answer_and_keeps_the_first_reason(tx: Connection) -> None:
    task_id = enqueue(tx)
    act(tx, "delete_task", task_id, reason="first")
    before = counts(tx)

    assert act(tx, "delete_task", task_id, reason="second") == "deleted"
    assert status(tx, task_id)["delete_reason"] == "first"
    assert counts(tx) == before


@pytest.mark.parametrize("function", ["delete_task", "restore_task"])
def test_an_unknown_task_is_refused(tx: Connection, function: str) -> None:
    with refused(tx, "QF404", "there is no task"):
        act(tx, function, UNKNOWN)


def test_restoring_gives_a_waiting_task_its_place_back(tx: Connection, clock: Clock) -> None:
    first = enqueue(tx, run_at=clock.after(-60))
    enqueue(tx)
    act(tx, "delete_task", first)

    assert act(tx, "restore_task", first) == "pending"
    assert status(tx, first)["deleted_at"] is None
    assert claim_one(tx)["task_id"] == first


def test_restoring_keeps_the_attempts_used(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    end(tx, claim_one(tx), "retry", run_at=clock.now)
    act(tx, "delete_task", task_id)

    assert act(tx, "restore_task", task_id) == "retrying"
    assert claim_one(tx)["attempt"] == 2


def test_restoring_a_running_task_lets_it_go_on(tx: Connection) -> None:
    task_id = enqueue(tx)
    task = claim_one(tx)
    act(tx, "delete_task", task_id)

    assert act(tx, "restore_task", task_id) == "claimed"
    assert heartbeat(tx, held(task)) == ["held"]
    end(tx, task, "retry")
    assert status(tx, task_id)["status"] == "retrying"


def test_restoring_what_was_not_deleted_changes_nothing(tx: Connection) -> None:
    task_id = enqueue(tx)
    before = counts(tx)

    assert act(tx, "restore_task", task_id) == "pending"
    assert counts(tx) == before


def test_restoring_takes_the_key_back(tx: Connection) -> None:
    task_id = enqueue(tx, idempotency_key="k")
    act(tx, "delete_task", task_id)
    act(tx, "restore_task", task_id)

    assert enqueue(tx, idempotency_key="k") == task_id


def test_restoring_is_refused_when_the_key_has_gone_to_another_task(tx: Connection) -> None:
    task_id = enqueue(tx, idempotency_key="k")
    act(tx, "delete_task", task_id)
    holder = enqueue(tx, idempotency_key="k")

    with refused(tx, "QF409", str(task_id), '"k"', str(holder)):
        act(tx, "restore_task", task_id)
    act(tx, "delete_task", holder)
    assert act(tx, "restore_task", task_id) == "pending"


def test_restoring_a_running_task_whose_key_is_taken_leaves_it_deleted(tx: Connection) -> None:
    task_id = enqueue(tx, idempotency_key="k")
    task = claim_one(tx)
    act(tx, "delete_task", task_id)
    enqueue(tx, idempotency_key="k")

    with refused(tx, "QF409"):
        act(tx, "restore_task", task_id)
    assert heartbeat(tx, held(task)) == ["deleted"]


def test_actors_and_reasons_are_recorded(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    clock.advance(1)
    act(tx, "delete_task", task_id, reason="spam")
    clock.advance(1)
    act(tx, "restore_task", task_id, reason="no spam")

    told = [(e["event_type"], e["actor"], e["reason"]) for e in events(tx, task_id)[-2:]]
    assert told == [("deleted", tx.info.user, "spam"), ("restored", tx.info.user, "no spam")]


def test_a_delete_that_waits_for_a_claim_marks_the_lease(db: Database) -> None:
    worker = db.connect("holdfast_worker", autocommit=False)
    operator = db.connect("holdfast_operator")
    task_id = enqueue(db.connect())
    task = claim_one(worker)

    with in_background(lambda: act(operator, "delete_task", task_id)) as deleting:
        wait_until_blocked(db.connect(), operator)
        worker.commit()

    assert deleting.result() == "deleted"
    assert heartbeat(worker, held(task)) == ["deleted"]


def test_a_restore_and_a_taker_of_the_key_cannot_both_have_it(db: Database) -> None:
    client = db.connect("holdfast_client", autocommit=False)
    operator = db.connect("holdfast_operator")
    task_id = enqueue(db.connect("holdfast_client"), idempotency_key="k")
    act(operator, "delete_task", task_id)
    enqueue(client, idempotency_key="k")

    with in_background(lambda: act(operator, "restore_task", task_id)) as restoring:
        wait_until_blocked(db.connect(), operator)
        client.commit()

    error = restoring.exception()
    assert isinstance(error, psycopg.Error)
    assert error.sqlstate == "QF409"
