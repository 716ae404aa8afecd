"""queues.fork, run_timeline and record_changes, and what continue refuses. See also test_generations."""

from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    Row,
    answer,
    call,
    claim_one,
    end,
    enqueue,
    held,
    refused,
    rows,
    status,
)


def _claimed(tx: Connection, **arguments: Any) -> Row:
    enqueue(tx, **arguments)
    return claim_one(tx)


def _step(name: str, number: int, **more: Any) -> Row:
    return {"name": name, "number": number, "kind": "step", **more}


def _signal(tx: Connection, task_id: Any, payload: Any) -> str:
    return str(answer(tx, "queues.signal", {"task_id": task_id, "name": "note", "payload": payload}))


def test_arguments_that_cannot_be_stored_fail_the_run(tx: Connection) -> None:
    task = _claimed(tx)

    assert end(tx, task, "continue", payload=[1]) == "accepted"
    assert status(tx, task["task_id"])["status"] == "failed"
    assert "not an object" in status(tx, task["task_id"])["reason"]
    assert status(tx, task["task_id"])["generation"] == 1


def test_a_fork_remembers_the_steps_before(tx: Connection) -> None:
    task = _claimed(tx, payload={"n": 1}, idempotency_key="order-7")
    end(
        tx, task, steps=[_step("charge", 1, result=5, arguments={"n": 7}), _step("pack", 2), _step("ship", 3)]
    )

    fork = answer(
        tx, "queues.fork", {"task_id": task["task_id"], "before_step": "pack", "reason": "wrong box"}
    )

    again = claim_one(tx)
    assert (again["task_id"], again["payload"]) == (fork, {"n": 1})
    assert again["metadata"] == {"fork_of": str(task["task_id"]), "fork_reason": "wrong box"}
    facts = call(tx, "queues.read_steps", {"worker_id": "w1", "held": held(again)})
    assert [(row["name"], row["result"]) for row in facts if row["fact"] == "step"] == [("charge", 5)]
    copied = rows(tx, "select arguments from queues.step_status where task_id = %s", [fork])
    assert copied == [{"arguments": {"n": 7}}]


def test_a_fork_before_a_step_that_was_not_recorded_is_refused(tx: Connection) -> None:
    task = _claimed(tx)

    with refused(tx, "QF404", "has not recorded a step", "pack"):
        answer(tx, "queues.fork", {"task_id": task["task_id"], "before_step": "pack"})


def test_the_timeline_has_everything_in_order_and_no_values(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    clock.advance(1)
    call(
        tx,
        "queues.record_steps",
        {"worker_id": "w1", "runs": held(task, steps=[_step("charge", 1, result="secret")])},
    )
    clock.advance(1)
    _signal(tx, task["task_id"], "secret")
    until = clock.after(60)
    end(tx, task, "suspend", run_at=until, waits=[{"name": "decision", "signal": "decision", "until": until}])

    found = call(tx, "queues.run_timeline", {"task_id": task["task_id"]})

    assert [row["happened"] for row in found] == [
        "created",
        "claimed",
        "started",
        "step",
        "suspended",
        "signalled",
        "waits",
    ]
    assert "secret" not in str(found)
    assert found[-1]["reason"] == "signal decision"


def test_a_neighbour_neither_sees_nor_signals_nor_forks_a_run(db: Database) -> None:
    conn = db.connect()
    task_id = enqueue(conn)
    neighbour = db.connect("holdfast_client")

    with pytest.raises(psycopg.Error, match="there is no task"):
        _signal(neighbour, task_id, 1)
    with pytest.raises(psycopg.Error, match="there is no task"):
        answer(neighbour, "queues.fork", {"task_id": task_id})
    with pytest.raises(psycopg.Error, match="there is no task"):
        call(neighbour, "queues.run_timeline", {"task_id": task_id})
    end(conn, claim_one(conn), steps=[_step("charge", 1, result="secret")])
    for view in ("step_status", "signal_status", "wait_status", "task_error"):
        assert rows(neighbour, f"select from queues.{view}") == []


def test_a_change_is_first_seen_once(tx: Connection, clock: Clock) -> None:
    answer(tx, "queues.record_changes", {"type": "default.work", "names": ["survey"]})
    clock.advance(60)
    answer(tx, "queues.record_changes", {"type": "default.work", "names": ["survey", "other"]})

    found = rows(tx, "select name, first_seen_at from queues.change order by name")
    assert [(row["name"], row["first_seen_at"]) for row in found] == [
        ("other", clock.now),
        ("survey", clock.after(-60)),
    ]
