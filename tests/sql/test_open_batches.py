"""Open batches: a running task adds tasks to its batch, and what comes after waits for them, too."""

import json
from typing import Any

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    Row,
    act,
    call,
    change_setting,
    claim,
    claim_one,
    end,
    enqueue,
    refused,
    rows,
    status,
    sweep,
    value,
)


def batch(tx: Connection, size: int = 2, condition: str = "succeeded") -> tuple[Any, list[Row]]:
    """The task after a batch, and its running tasks."""
    members = [enqueue(tx, "work.page") for _ in range(size)]
    given = [json.dumps([{"type": "run.index"}]), members, condition]
    last = value(tx, "select task_id from queues.enqueue_after(%s, %s::uuid[], %s)", given)
    return last, claim(tx, queues=["work"], max_tasks=size)


def add(
    tx: Connection, member: Row, *tasks: Row, worker_id: str = "w1", name: str = "batch.add"
) -> list[Row]:
    of = {"task_id": member["task_id"], "token": member["token"], "name": name, "number": 1, "batch": True}
    given = [{"type": "work.page", **task} for task in tasks or ({},)]
    return call(tx, "queues.start_children", {"worker_id": worker_id, "held": of, "tasks": given})


def finish(tx: Connection, member: Row, how: str = "succeeded") -> None:
    assert end(tx, member, how) == "accepted"
    call(tx, "queues.wake_joined", {"task_ids": [member["task_id"]]})
    sweep(tx)


def members(tx: Connection, last: Any) -> list[Any]:
    return [row["batch_members"] for row in call(tx, "queues.batch_members", {"task_id": last})]


def test_the_task_after_a_batch_waits_for_those_that_a_member_added(tx: Connection) -> None:
    last, (one, two) = batch(tx)
    (added,) = add(tx, two)
    finish(tx, one)
    finish(tx, two)
    assert status(tx, last)["status"] == "suspended"

    further = claim_one(tx, queues=["work"])
    assert further["task_id"] == added["task_id"]
    (more,) = add(tx, further)  # an added task is a member, too
    finish(tx, further)
    assert claim(tx, queues=["run"]) == []
    finish(tx, claim_one(tx, queues=["work"]))

    assert members(tx, last) == [one["task_id"], two["task_id"], added["task_id"], more["task_id"]]
    assert claim_one(tx, queues=["run"])["task_id"] == last


def test_an_added_task_that_fails_cancels_what_comes_after(tx: Connection) -> None:
    last, (one,) = batch(tx, 1)
    (added,) = add(tx, one)
    finish(tx, one)
    finish(tx, claim_one(tx, queues=["work"]), "failed")
    assert status(tx, last)["reason"] == f"after: {added['task_id']} ended failed"


def test_a_repeated_call_adds_nothing(tx: Connection) -> None:
    last, (one,) = batch(tx, 1)
    assert [row["verdict"] for row in (*add(tx, one, {}, {}), *add(tx, one, {}, {}))] == [
        *["started"] * 2,
        *["already"] * 2,
    ]
    assert len(members(tx, last)) == 3


def test_a_worker_without_the_lease_adds_nothing(tx: Connection) -> None:
    last, (one,) = batch(tx, 1)
    (refused_row,) = add(tx, one, worker_id="w2")
    assert (refused_row["verdict"], len(members(tx, last))) == ("lost", 1)


def test_added_tasks_belong_to_the_namespace_of_the_member(tx: Connection) -> None:
    given = ['[{"type": "work.page"}, {"type": "run.index"}]']
    tx.execute("select queues.insert_tasks(%s, false, 'shop_app', 'shop')", given)
    last = value(tx, "select task_id from queues.task where type = 'run.index'")
    one = value(tx, "select task_id from queues.task where type = 'work.page'")
    tx.execute("select queues.hold_back(%s, %s)", [[last], [one]])

    (added,) = add(tx, claim_one(tx, queues=["work"]))

    query = "select namespace, enqueued_by from queues.task where task_id = %s"
    assert rows(tx, query, [added["task_id"]]) == [{"namespace": "shop", "enqueued_by": "shop_app"}]


def test_a_task_that_nothing_comes_after_has_no_batch(tx: Connection) -> None:
    enqueue(tx, "work.page")
    with refused(tx, "QF412", "no task comes after it"):
        add(tx, claim_one(tx, queues=["work"]))


def test_a_batch_is_closed_when_the_task_after_it_has_begun(tx: Connection) -> None:
    last, (one,) = batch(tx, 1, "ended")
    finish(tx, one, "failed")
    act(tx, "retry", one["task_id"])
    again = claim_one(tx, queues=["work"])
    assert claim_one(tx, queues=["run"])["task_id"] == last
    with refused(tx, "QF412", "is closed"):
        add(tx, again)


def test_a_batch_that_a_failure_has_ended_may_grow_and_be_retried(tx: Connection) -> None:
    last, (one, two) = batch(tx)
    finish(tx, one, "failed")
    assert status(tx, last)["status"] == "cancelled"
    (added,) = add(tx, two)
    finish(tx, two)

    act(tx, "retry", one["task_id"])
    for _ in range(2):
        finish(tx, claim_one(tx, queues=["work"]))
    assert status(tx, added["task_id"])["status"] == "succeeded"
    assert claim_one(tx, queues=["run"])["task_id"] == last


def test_a_task_with_a_key_is_added_once_by_two_members(tx: Connection) -> None:
    last, (one, two) = batch(tx)
    (first,) = add(tx, one, {"idempotency_key": "page-7"})
    (second,) = add(tx, two, {"idempotency_key": "page-7"})
    assert first["task_id"] == second["task_id"]
    assert len(members(tx, last)) == 3


def test_a_task_that_was_enqueued_before_is_not_added(tx: Connection) -> None:
    _, (one,) = batch(tx, 1)
    enqueue(tx, "work.page", idempotency_key="page-7")
    with refused(tx, "QF412", "was enqueued before"):
        add(tx, one, {"idempotency_key": "page-7"})


def test_the_number_of_tasks_of_a_batch_is_limited(tx: Connection) -> None:
    _, (one, two) = batch(tx)
    change_setting(tx, "max_children", 3)
    add(tx, one)
    with refused(tx, "QF413", "3 allowed"):
        add(tx, two)


@pytest.mark.parametrize("how", ["delete_task", "cancel"])
def test_a_batch_grows_until_its_member_is_removed(tx: Connection, clock: Clock, how: str) -> None:
    last, (one,) = batch(tx, 1, "ended")
    add(tx, one)
    act(tx, how, one["task_id"])
    sweep(tx)
    assert claim(tx, queues=["run"]) == []
    finish(tx, claim_one(tx, queues=["work"]))
    assert claim_one(tx, queues=["run"])["task_id"] == last


def test_a_member_that_goes_on_stays_in_its_batch(tx: Connection) -> None:
    last, (one,) = batch(tx, 1)
    assert end(tx, one, "continue", payload={}) == "accepted"
    following = claim_one(tx, queues=["work"])
    (added,) = add(tx, following)
    assert members(tx, last)[-1] == added["task_id"]
