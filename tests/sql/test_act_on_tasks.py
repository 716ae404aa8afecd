"""queues.act_on_tasks: the same act on many tasks, each under the rules of the act on one."""

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, Row, act, call, claim_one, end, enqueue, refused, rows, status

ENDED = ("succeeded", "failed", "dead_letter", "cancelled")
ALLOWED = {
    "cancel": {"scheduled", "pending", "retrying", "claimed"},
    "reschedule": {"scheduled", "pending", "retrying"},
    "retry": {"failed", "dead_letter", "cancelled"},
    "delete": {"scheduled", "pending", "retrying", "claimed", *ENDED},
    "restore": set[str](),
}


def acted(conn: Connection, name: str, task_ids: list[UUID], **more: Any) -> dict[UUID, Row]:
    found = call(conn, "queues.act_on_tasks", {"act": name, "task_ids": task_ids, **more})
    return {row["task_id"]: row for row in found}


def one_of_each(tx: Connection, clock: Clock) -> dict[UUID, str]:
    tasks: dict[UUID, str] = {}
    for ending in (*ENDED, "retrying", "claimed"):
        task_id = enqueue(tx, "default.work", max_attempts=1 if ending == "dead_letter" else 3)
        task = claim_one(tx)
        if ending != "claimed":
            how = "retry" if ending in {"dead_letter", "retrying"} else ending
            end(tx, task, how, run_at=clock.after(60))
        tasks[task_id] = ending
    tasks[enqueue(tx, "default.work", run_at=clock.after(60))] = "scheduled"
    tasks[enqueue(tx, "default.work")] = "pending"
    return tasks


@pytest.mark.parametrize("name", ALLOWED)
@pytest.mark.parametrize("dry_run", [False, True])
def test_tasks_in_another_status_are_left_as_they_are(
    tx: Connection, clock: Clock, name: str, dry_run: bool
) -> None:
    tasks = one_of_each(tx, clock)
    before = {task_id: status(tx, task_id) for task_id in tasks}
    found = acted(tx, name, list(tasks), reason="why", run_at=clock.after(90), dry_run=dry_run)
    assert {tasks[task_id] for task_id, row in found.items() if row["changed"]} == ALLOWED[name]
    assert all((row["problem"] is None) == row["changed"] for row in found.values())
    acts = rows(tx, "select task_id, reason from queues.act where act = any(%s)", [[f"{name}d", "cancelled"]])
    assert dry_run or {row["reason"] for row in acts} <= {"why"}
    changed = {task_id for task_id in tasks if status(tx, task_id) != before[task_id]}
    assert changed == (set() if dry_run else {task_id for task_id, row in found.items() if row["changed"]})


def test_each_act_is_recorded_with_the_reason(tx: Connection) -> None:
    ids = [enqueue(tx) for _ in range(3)]
    acted(tx, "cancel", ids, reason="ordered twice")
    told = rows(tx, "select task_id, reason from queues.act where act = 'cancelled'")
    assert {(row["task_id"], row["reason"]) for row in told} == {(one, "ordered twice") for one in ids}


def test_deleted_tasks_are_restored_and_nothing_else_is_done_with_them(tx: Connection) -> None:
    task_id = enqueue(tx)
    act(tx, "delete_task", task_id)
    for name in ("cancel", "delete"):
        assert acted(tx, name, [task_id])[task_id]["problem"] == "it is deleted"
    assert acted(tx, "restore", [task_id])[task_id]["status"] == "pending"
    assert acted(tx, "restore", [task_id])[task_id]["problem"] == "it is not deleted"


def test_a_client_acts_on_its_own_tasks_and_learns_nothing_of_others(db: Database) -> None:
    admin, client = db.connect(), db.connect("holdfast_client")
    foreign, own = enqueue(admin), enqueue(client)
    assert acted(client, "cancel", [foreign, own, uuid4()]).keys() == {own}
    assert status(admin, foreign)["status"] == "pending"


def test_a_client_that_may_read_all_tasks_still_changes_only_its_own(db: Database) -> None:
    admin, client = db.connect(), db.connect("holdfast_client")
    foreign = enqueue(admin)
    admin.execute("grant holdfast_reader to holdfast_client_login")
    try:
        assert acted(client, "cancel", [foreign]) == {}
    finally:
        admin.execute("revoke holdfast_reader from holdfast_client_login")
    assert status(admin, foreign)["status"] == "pending"


@pytest.mark.parametrize("name", ["retry", "delete", "restore"])
def test_a_client_may_do_no_more_with_many_tasks_than_with_one(db: Database, name: str) -> None:
    client = db.connect("holdfast_client")
    task_id = enqueue(client)
    if name == "retry":
        act(client, "cancel", task_id)
    elif name == "restore":
        act(db.connect(), "delete_task", task_id)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        acted(client, name, [task_id])


def test_a_reader_may_not_act(db: Database) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        acted(db.connect("holdfast_reader"), "cancel", [])


def test_a_task_that_another_transaction_holds_does_not_stop_the_others(db: Database) -> None:
    admin, other = db.connect(), db.connect()
    ids = [enqueue(admin) for _ in range(3)]
    with other.transaction():
        act(other, "cancel", ids[1])
        found = acted(admin, "cancel", ids)
        assert [found[one]["changed"] for one in ids] == [True, False, True]
        assert "another transaction" in found[ids[1]]["problem"]


def test_a_key_that_was_given_away_is_a_problem_of_one_task(tx: Connection) -> None:
    first = enqueue(tx, "a.b", idempotency_key="k")
    act(tx, "delete_task", first)
    enqueue(tx, "a.b", idempotency_key="k")
    second = enqueue(tx, "a.b")
    act(tx, "delete_task", second)
    found = acted(tx, "restore", [first, second])
    assert (found[first]["changed"], found[second]["changed"]) == (False, True)
    assert "key" in found[first]["problem"]


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ({"act": "explode"}, "QF400", "act"),
        ({"act": None}, "QF400", "act"),
        ({"act": "reschedule"}, "QF400", "run_at"),
        ({"task_ids": None}, "QF413", "task_ids"),
        ({"task_ids": [uuid4()] * 51}, "QF413", "task_ids"),
        ({"task_ids": [uuid4()] * 10001, "dry_run": True}, "QF413", "task_ids"),
    ],
)
def test_what_cannot_be_meant_is_refused(tx: Connection, given: Row, code: str, told: str) -> None:
    with refused(tx, code, told):
        call(tx, "queues.act_on_tasks", {"act": "cancel", "task_ids": [], **given})
