"""queues.record_killed: records how a run ended, whichever worker has the task by then."""

from typing import Any

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    Row,
    act,
    call,
    claim_one,
    end,
    enqueue,
    events,
    held,
    refused,
    release,
    rows,
    status,
    sweep,
)

KILLED = {"kind": "killed_on_cancel", "message": "the run was ended", "stderr": "last words"}


def record_killed(tx: Connection, killed: Any, worker_id: str = "w1") -> list[str]:
    return [
        row["verdict"] for row in call(tx, "queues.record_killed", {"worker_id": worker_id, "killed": killed})
    ]


def errors(tx: Connection, task: Row) -> list[Row]:
    return rows(tx, "select * from queues.task_error where task_id = %s", [task["task_id"]])


def test_the_end_of_a_cancelled_run_is_kept_and_its_status_stays(tx: Connection) -> None:
    enqueue(tx)
    task = claim_one(tx)
    act(tx, "cancel", task["task_id"])

    assert record_killed(tx, held(task, error=KILLED)) == ["recorded"]

    (error,) = errors(tx, task)
    assert (error["kind"], error["message"], error["attempt"]) == ("killed_on_cancel", "the run was ended", 1)
    assert (error["detail"], error["worker_id"], error["recovered"]) == (KILLED, "w1", False)
    assert status(tx, task["task_id"])["status"] == "cancelled"
    assert [event["event_type"] for event in events(tx, task["task_id"])] == [
        *("created", "claimed", "cancelled", "killed"),
    ]


@pytest.mark.parametrize("taken", ["held", "released", "swept", "retried"])
def test_it_is_kept_whatever_became_of_the_task(tx: Connection, clock: Clock, taken: str) -> None:
    enqueue(tx)
    task = claim_one(tx)
    match taken:
        case "released":
            release(tx, held(task))
        case "swept":
            clock.advance(3600)
            sweep(tx)
        case "retried":
            end(tx, task, "retry", error="no")
    before = status(tx, task["task_id"])["status"]

    assert record_killed(tx, held(task, error=KILLED)) == ["recorded"]
    assert errors(tx, task)[-1]["kind"] == "killed_on_cancel"
    assert status(tx, task["task_id"])["status"] == before


def test_a_repeated_call_keeps_it_once(tx: Connection) -> None:
    enqueue(tx)
    task = claim_one(tx)

    assert record_killed(tx, held(task, error=KILLED)) == ["recorded"]
    assert record_killed(tx, held(task, error=KILLED)) == ["already_done"]
    assert len(errors(tx, task)) == 1


def test_nothing_is_kept_for_who_did_not_hold_the_task(tx: Connection) -> None:
    enqueue(tx)
    task = claim_one(tx)

    assert record_killed(tx, held(task, error=KILLED), "another") == ["lost"]
    assert record_killed(tx, held({**task, "token": task["token"] + 1}, error=KILLED)) == ["lost"]
    assert errors(tx, task) == []


def test_an_error_of_any_shape_is_kept(tx: Connection) -> None:
    enqueue(tx)
    task = claim_one(tx)

    assert record_killed(tx, held(task, error="it was killed")) == ["recorded"]
    assert [(error["kind"], error["message"]) for error in errors(tx, task)] == [("killed", "it was killed")]


def test_what_is_not_a_batch_is_refused(tx: Connection) -> None:
    with refused(tx, "QF400", "killed must be an array"):
        record_killed(tx, {})
