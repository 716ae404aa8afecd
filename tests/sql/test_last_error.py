"""queues.last_error: what the holder of a task must know about the previous attempt."""

from datetime import timedelta

import pytest

from support.clock import Clock
from support.engine import Connection, Row, call, claim_one, end, enqueue, sweep


def _last(conn: Connection, task: Row, **other: object) -> list[Row]:
    asked = {"worker_id": "w1", "task_id": task["task_id"], "token": task["token"]}
    return call(conn, "queues.last_error", asked | other)


def test_before_the_first_error_there_is_none(tx: Connection) -> None:
    enqueue(tx)

    assert _last(tx, claim_one(tx)) == []


def test_what_the_worker_reported_comes_back(tx: Connection, clock: Clock) -> None:
    enqueue(tx)
    end(tx, claim_one(tx), "retry", error={"kind": "busy", "message": "m", "sent": False})
    clock.advance(600)

    (found,) = _last(tx, claim_one(tx))
    assert (found["kind"], found["recovered"], found["detail"]["sent"]) == ("busy", False, False)
    assert found["age"] == timedelta(seconds=600)


def test_a_lease_that_ended_without_a_report_is_told_from_that(tx: Connection, clock: Clock) -> None:
    enqueue(tx)
    end(tx, claim_one(tx), "retry", error={"kind": "busy"}, run_at=clock.now.isoformat())
    claim_one(tx)
    clock.advance(60)
    sweep(tx)

    (found,) = _last(tx, claim_one(tx))
    assert (found["kind"], found["recovered"], found["detail"]) == ("lease_expired", True, None)


@pytest.mark.parametrize("other", [{"worker_id": "w2"}, {"token": 0}, {"token": None}])
def test_who_does_not_hold_the_task_learns_nothing(
    tx: Connection, clock: Clock, other: dict[str, object]
) -> None:
    enqueue(tx)
    end(tx, claim_one(tx), "retry", run_at=clock.now.isoformat())

    assert _last(tx, claim_one(tx), **other) == []
