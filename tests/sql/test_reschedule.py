"""queues.reschedule: nudges a waiting task to another time."""

from typing import Any

import pytest

from support.clock import Clock
from support.engine import Connection, act, claim, claim_one, counts, end, enqueue, events, refused, status


def test_a_scheduled_task_can_be_brought_forward(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, run_at=clock.after(3600))

    assert act(tx, "reschedule", task_id, run_at=clock.now) == "pending"
    assert claim_one(tx)["task_id"] == task_id


def test_a_due_task_can_be_put_off(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)

    assert act(tx, "reschedule", task_id, run_at=clock.after(60)) == "scheduled"
    assert status(tx, task_id)["run_at"] == clock.after(60)
    assert claim(tx) == []


def test_attempts_stay_counted(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    end(tx, claim_one(tx), "retry", run_at=clock.after(3600))

    assert act(tx, "reschedule", task_id, run_at=clock.now) == "retrying"
    assert claim_one(tx)["attempt"] == 2


@pytest.mark.parametrize("ending", [None, "succeeded", "failed", "cancelled"])
def test_what_does_not_wait_is_left_as_it_is(tx: Connection, clock: Clock, ending: str | None) -> None:
    task_id = enqueue(tx)
    task = claim_one(tx)
    if ending:
        end(tx, task, ending)
    before, told = counts(tx), status(tx, task_id)

    assert act(tx, "reschedule", task_id, run_at=clock.after(60)) == (ending or "claimed")
    assert (counts(tx), status(tx, task_id)) == (before, told)


def test_a_deleted_task_is_left_where_it_is_parked(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    act(tx, "delete_task", task_id)

    act(tx, "reschedule", task_id, run_at=clock.after(60))

    assert status(tx, task_id)["run_at"] == clock.now
    assert claim(tx) == []


@pytest.mark.parametrize(
    "run_at",
    [None, "infinity", "-infinity", "1969-12-31 00:00Z", "2199-01-01 00:00Z", "0044-03-15 12:00Z BC"],
)
def test_a_time_that_cannot_be_meant_is_refused(tx: Connection, run_at: Any) -> None:
    task_id = enqueue(tx)

    with refused(tx, "QF400", "run_at"):
        act(tx, "reschedule", task_id, run_at=run_at)


def test_an_unknown_task_is_refused(tx: Connection, clock: Clock) -> None:
    with refused(tx, "QF404", "there is no task"):
        act(tx, "reschedule", "00000000-0000-7000-8000-000000000000", run_at=clock.now)


def test_actor_reason_and_times_are_recorded(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    clock.advance(1)
    act(tx, "reschedule", task_id, run_at=clock.after(60), reason="too early")

    event = events(tx, task_id)[-1]
    assert (event["event_type"], event["actor"], event["reason"]) == (
        "rescheduled",
        tx.info.user,
        "too early",
    )
    assert set(event["data"]) == {"from", "to"}


def test_repeated_to_the_same_time_it_is_one_act(tx: Connection, clock: Clock) -> None:
    """A caller that got no response repeats the call."""
    task_id = enqueue(tx)
    answers = [act(tx, "reschedule", task_id, run_at=clock.after(60), reason="later") for _ in range(2)]
    assert answers == ["scheduled", "scheduled"]
    assert [event["event_type"] for event in events(tx, task_id)] == ["created", "rescheduled"]
