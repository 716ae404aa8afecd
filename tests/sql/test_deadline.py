"""The deadline of a task: when it has to have ended, whatever it waits for, and what starts it again."""

from datetime import timedelta
from typing import Any

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    act,
    answer,
    call,
    claim_one,
    end,
    enqueue,
    enqueue_many,
    explain,
    refused,
    rows,
    status,
    value,
)

HOUR = timedelta(hours=1)


def _claimed(tx: Connection, **arguments: Any) -> Any:
    enqueue(tx, **arguments)
    return claim_one(tx)


@pytest.mark.parametrize(
    "function",
    [
        "queues.enqueue('default.x', deadline => '1 hour')",
        "queues.enqueue('default.x', run_at => queues.clock(), deadline => '60 minutes')",
        """queues.enqueue_many('[{"type": "default.x", "deadline": 3600}]')""",
        """queues.enqueue_many('[{"type": "default.x", "deadline": "1 hour"}]', array['{}'])""",
        "queues.enqueue_unique('default.x', key => 'a', \"unique\" => 'waiting', deadline => '1 hour')",
        "queues.enqueue_unique('default.x', \"unique\" => 'active', deadline => '1 hour')",
    ],
)
def test_each_way_to_enqueue_takes_it(tx: Connection, clock: Clock, function: str) -> None:
    rows(tx, f"select * from {function}")

    assert claim_one(tx)["ends_at"] == clock.after(3600)
    assert value(tx, "select deadline from queues.task_status") == HOUR


def test_it_is_that_of_its_type_unless_the_task_has_its_own(tx: Connection, clock: Clock) -> None:
    answer(
        tx, "queues.register_types", {"types": [{"type": "default.x", "queue": "default", "deadline": 60}]}
    )

    assert _claimed(tx, type="default.x")["ends_at"] == clock.after(60)
    assert _claimed(tx, type="default.x", deadline=HOUR)["ends_at"] == clock.after(3600)


def test_that_of_its_type_is_left_out_where_a_process_decides(tx: Connection) -> None:
    types = [{"type": "comms.send", "queue": "comms", "deadline": 60}]
    answer(tx, "queues.register_types", {"types": types})
    for executor, payload in (
        ("db_function", {"task_type": "db_function", "db_function": "comms.x"}),
        ("python", {}),
    ):
        task = {"type": "comms.send", "executor": executor, "payload": payload}
        enqueue_many(tx, [task])

    stored = rows(tx, "select executor, deadline from queues.task_status order by executor")
    assert [(row["executor"], row["deadline"]) for row in stored] == [
        ("db_function", None),
        ("python", timedelta(seconds=60)),
    ]


@pytest.mark.parametrize("given", ["36500 days", "3153600000", "3153600000.0", "0.001", "1 ms"])
def test_the_least_and_the_most_are_allowed(tx: Connection, given: str) -> None:
    enqueue_many(tx, [{"type": "default.x", "deadline": given}])

    assert value(tx, "select deadline from queues.task_status") == value(tx, f"select interval '{given}'")


@pytest.mark.parametrize(
    "given", ["0", "-1 second", "soon", "40000 days", "3153600001", "9999999999", "99999999999"]
)
def test_a_deadline_that_is_no_duration_is_refused(tx: Connection, given: str) -> None:
    with refused(tx, "QF400", "deadline", given):
        answer(tx, "queues.enqueue_many", {"tasks": [{"type": "default.x", "deadline": given}]})


def test_a_task_of_a_business_process_has_none(tx: Connection) -> None:
    task = {"type": "default.x", "executor": "db_function", "deadline": 60, "payload": {}}
    with refused(tx, "QF400", "has no deadline", "db_function"):
        answer(tx, "queues.enqueue_many", {"tasks": [task]})


@pytest.mark.parametrize("report", ["retry", "snooze", "suspend"])
def test_a_task_is_due_at_the_deadline_whatever_it_waits_for(
    tx: Connection, clock: Clock, report: str
) -> None:
    task = _claimed(tx, deadline=HOUR)

    end(tx, task, report, run_at=clock.after(86400), ends_at=task["ends_at"])

    assert status(tx, task["task_id"])["run_at"] == clock.after(3600)


def test_a_retry_by_hand_counts_it_anew_and_a_restore_does_not(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx, deadline=HOUR)
    end(tx, task, "failed", error="late")
    clock.advance(7200)
    act(tx, "retry", task["task_id"])
    again = claim_one(tx)
    assert again["ends_at"] == clock.after(3600)
    end(tx, again, "retry", run_at=clock.after(1), error="again")

    clock.advance(60)
    act(tx, "delete_task", task["task_id"])
    clock.advance(60)
    act(tx, "restore_task", task["task_id"])
    assert claim_one(tx)["ends_at"] == clock.after(3600 - 120)


@pytest.mark.parametrize("copy", ["fork", "replay"])
def test_a_copy_has_all_of_it(tx: Connection, clock: Clock, copy: str) -> None:
    task = _claimed(tx, deadline=HOUR)
    end(tx, task)
    clock.advance(7200)

    answer(tx, f"queues.{copy}", {"task_id": task["task_id"]})

    assert claim_one(tx)["ends_at"] == clock.after(3600)


def test_it_is_that_of_all_generations(tx: Connection, clock: Clock) -> None:
    ends_at = clock.after(3600)
    task = _claimed(tx, deadline=HOUR)
    for _ in range(3):
        clock.advance(600)
        end(tx, task, "continue", payload={})
        task = claim_one(tx)
        assert task["ends_at"] == ends_at

    clock.advance(7200)
    end(tx, task, "continue", payload={})
    assert claim_one(tx)["ends_at"] == ends_at


def test_a_waiting_and_a_running_task_say_when_they_have_to_end(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, deadline=HOUR, run_at=clock.after(60))
    said = f"It has to end by {value(tx, 'select (queues.clock() + %s)::text', [HOUR])}."

    assert said in explain(tx, task_id)
    clock.advance(60)
    task = claim_one(tx)
    assert said in explain(tx, task_id)
    assert _deadlines(tx, task_id) == [task["ends_at"]]

    end(tx, task)
    assert said not in explain(tx, task_id)
    assert _deadlines(tx, task_id) == []


def _deadlines(tx: Connection, task_id: Any) -> list[Any]:
    timeline = call(tx, "queues.run_timeline", {"task_id": task_id})
    return [entry["ended_at"] for entry in timeline if entry["happened"] == "deadline"]
