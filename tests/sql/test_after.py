"""enqueue_after: tasks that wait for others, and what becomes of them when those end."""

import json
from typing import Any

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    Row,
    act,
    call,
    claim,
    claim_one,
    end,
    enqueue,
    explain,
    held,
    refused,
    rows,
    status,
    sweep,
    value,
)


def after(tx: Connection, tasks: list[Any], condition: str = "succeeded", **more: Any) -> Any:
    given = [json.dumps([{"type": "work.next", **more}]), tasks, condition]
    return value(tx, "select task_id from queues.enqueue_after(%s, %s::uuid[], %s)", given)


def finish(tx: Connection, how: str = "succeeded") -> Row:
    task = claim_one(tx, queues=["work"])
    end(tx, task, how)
    call(tx, "queues.wake_joined", {"task_ids": [task["task_id"]]})
    sweep(tx)
    return task


def statuses(tx: Connection, *task_ids: Any) -> list[str]:
    return [status(tx, task_id)["status"] for task_id in task_ids]


@pytest.mark.parametrize("role", ["holdfast_client", "holdfast_process"])
def test_a_login_that_may_enqueue_may_enqueue_after_others(tx: Connection, role: str) -> None:
    tx.execute(f"set local role {role}".encode())
    assert after(tx, [enqueue(tx, "work.first")])
    tx.execute("reset role")


@pytest.mark.parametrize("tasks", ["null", "{}", "7", "[[]]", '["work.next"]'])
def test_what_is_not_an_array_of_objects_is_refused(tx: Connection, tasks: str) -> None:
    with refused(tx, "QF400", "tasks"):
        tx.execute("select queues.enqueue_after(%s, %s::uuid[])", [tasks, [enqueue(tx, "work.first")]])


def test_a_task_after_others_runs_when_all_have_succeeded(tx: Connection) -> None:
    one, two = enqueue(tx, "work.first"), enqueue(tx, "work.first")
    last = after(tx, [one, two])

    finish(tx)
    assert statuses(tx, last) == ["suspended"]
    finish(tx)
    assert claim_one(tx, queues=["work"])["task_id"] == last


def test_explain_names_the_task_before_it(tx: Connection) -> None:
    one = enqueue(tx, "work.first")
    last = after(tx, [one])
    assert explain(tx, last) == f"It comes after task {one}, which is pending."


def test_after_tasks_that_have_ended_it_is_due_at_once(tx: Connection) -> None:
    one = enqueue(tx, "work.first")
    finish(tx)
    assert statuses(tx, after(tx, [one]), after(tx, [])) == ["pending", "pending"]


def test_it_keeps_its_own_time(tx: Connection, clock: Clock) -> None:
    one = enqueue(tx, "work.first")
    last = after(tx, [one], run_at=str(clock.after(60)))
    finish(tx)
    assert status(tx, last)["run_at"] == clock.after(60)


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_a_failure_cancels_all_that_come_after_with_the_reason(tx: Connection, how: str) -> None:
    one = enqueue(tx, "work.first")
    two = after(tx, [one])
    three = after(tx, [two])

    finish(tx, how)

    assert statuses(tx, two, three) == ["cancelled", "cancelled"]
    assert status(tx, two)["reason"] == f"after: {one} ended {how}"
    assert status(tx, three)["reason"] == f"after: {two} ended cancelled"
    assert rows(tx, "select from queues.wait") == []


def test_cancelling_a_task_cancels_all_that_come_after(tx: Connection) -> None:
    one = enqueue(tx, "work.first")
    tasks = [one]
    for _ in range(15):
        tasks.append(after(tx, [tasks[-1]]))
    act(tx, "cancel", one)
    sweep(tx)
    assert set(statuses(tx, *tasks)) == {"cancelled"}


def test_a_deleted_task_cancels_what_comes_after(tx: Connection) -> None:
    one = enqueue(tx, "work.first")
    two = after(tx, [one])
    act(tx, "delete_task", one)
    sweep(tx)
    assert status(tx, two)["reason"] == f"after: {one} was deleted"


def test_with_the_condition_ended_it_runs_in_any_case(tx: Connection) -> None:
    one = enqueue(tx, "work.first")
    two = after(tx, [one], condition="ended")
    finish(tx, "failed")
    assert statuses(tx, two) == ["pending"]


def test_a_retry_brings_back_what_the_failure_cancelled(tx: Connection) -> None:
    one = enqueue(tx, "work.first")
    two = after(tx, [one])
    three = after(tx, [two])
    finish(tx, "failed")

    act(tx, "retry", one)
    assert statuses(tx, two, three) == ["suspended", "suspended"]
    for task in (one, two, three):
        assert finish(tx)["task_id"] == task
    assert statuses(tx, one, two, three) == ["succeeded"] * 3


def test_a_task_for_which_others_wait_cannot_be_made_to_wait(tx: Connection) -> None:
    one = enqueue(tx, "work.first")
    two = after(tx, [one])
    with refused(tx, "QF412", "others wait for it"):
        tx.execute("select queues.hold_back(%s, %s)", [[one], [two]])


def test_it_can_only_come_after_tasks_that_exist(tx: Connection) -> None:
    with refused(tx, "QF404"):
        after(tx, ["00000000-0000-0000-0000-000000000001"])


def test_a_task_that_already_has_the_key_is_not_held_back(tx: Connection) -> None:
    one = enqueue(tx, "work.first")
    kept = enqueue(tx, "work.next", idempotency_key="k")
    assert after(tx, [one], idempotency_key="k") == kept
    assert statuses(tx, kept) == ["pending"]


def test_claims_see_nothing_of_tasks_that_wait(tx: Connection) -> None:
    one = enqueue(tx, "slow.first")
    after(tx, [one])
    assert claim(tx, queues=["work"]) == []


def test_a_fork_sees_the_tasks_that_the_original_came_after(tx: Connection) -> None:
    one = enqueue(tx, "work.first")
    last = after(tx, [one])
    finish(tx)
    end(tx, claim_one(tx, queues=["work"]))

    fork = value(tx, "select queues.fork(%s)", [last])

    again = claim_one(tx, queues=["work"])
    facts = call(tx, "queues.read_steps", {"worker_id": "w1", "held": held(again)})
    (children,) = (row for row in facts if row["fact"] == "children")
    assert (again["task_id"], children["name"], children["number"]) == (fork, "", 1)


@pytest.mark.parametrize(("how", "becomes"), [("succeeded", "pending"), ("failed", "cancelled")])
def test_a_task_that_is_restored_notices_what_ended_while_it_was_deleted(
    tx: Connection, how: str, becomes: str
) -> None:
    last = after(tx, [enqueue(tx, "work.first")])
    act(tx, "delete_task", last)
    finish(tx, how)

    act(tx, "restore_task", last)
    sweep(tx)

    assert statuses(tx, last) == [becomes]
