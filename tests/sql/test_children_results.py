"""What a run reads of its children: results in the order of the step, and how the others have ended."""

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
    finish,
    held,
)


def _parent(tx: Connection) -> Row:
    enqueue(tx, "run.parent")
    return claim_one(tx, queues=["run"])


def _start(tx: Connection, parent: Row, tasks: list[Row], **more: Any) -> list[Row]:
    of = {
        "task_id": parent["task_id"],
        "token": parent["token"],
        "name": "pack",
        "number": 1,
        "awaited": True,
    }
    return call(tx, "queues.start_children", {"worker_id": "w1", "held": {**of, **more}, "tasks": tasks})


def _tasks(count: int) -> list[Row]:
    return [{"type": "work.pack", "payload": {"n": n}} for n in range(count)]


def _end_all(tx: Connection, *, failed: tuple[int, ...] = ()) -> None:
    """Each returns what it was called with, or fails."""
    claimed = claim(tx, queues=["work"], max_tasks=1000)
    reports = [
        {
            **held(task, status="failed" if task["payload"]["n"] in failed else "succeeded")[0],
            "result": task["payload"]["n"],
        }
        for task in claimed
    ]
    assert set(finish(tx, reports)) <= {"accepted"}


def _read(tx: Connection, parent: Row) -> Row:
    facts = call(tx, "queues.read_steps", {"worker_id": "w1", "held": held(parent)})
    (found,) = (row for row in facts if row["fact"] == "children")
    return found


def test_results_of_several_steps_are_large_together(tx: Connection) -> None:
    parent = _parent(tx)
    _start(tx, parent, _tasks(3))
    _start(tx, parent, _tasks(1), name="other")
    for task in claim(tx, queues=["work"], max_tasks=4):
        end(tx, task, result="a" * 1_000_000)

    facts = call(tx, "queues.read_steps", {"worker_id": "w1", "held": held(parent)})

    found = {row["name"]: row for row in facts if row["fact"] == "children"}
    assert (found["pack"]["result"], found["pack"]["error"]["paged"]) == (None, True)
    assert len(found["other"]["result"]) == 1


def test_children_that_were_there_before_give_their_results_in_the_order_of_the_step(tx: Connection) -> None:
    """Their ids are older than those of the children around them, and one of them is awaited twice."""
    keyed = [{"type": "work.pack", "payload": {"n": n}, "idempotency_key": str(n)} for n in range(9)]
    for n in (5, 3):
        enqueue(tx, "work.pack", payload={"n": n}, idempotency_key=str(n))
    parent = _parent(tx)
    _start(tx, parent, [*keyed, keyed[3]])

    _end_all(tx)

    assert _read(tx, parent)["result"] == [*range(9), 3]


@pytest.mark.parametrize("count", [3, 150])
def test_a_join_in_which_some_have_failed_has_the_results_of_the_others_in_order(
    tx: Connection, count: int
) -> None:
    parent = _parent(tx)
    children = _start(tx, parent, _tasks(count))

    _end_all(tx, failed=(1,))

    found = _read(tx, parent)
    assert found["number"] == count
    assert found["result"] == [n for n in range(count) if n != 1]
    assert found["error"]["open"] == 0
    [[number, task_id, how, _]] = found["error"]["others"]
    assert (number, task_id, how) == (2, str(children[1]["task_id"]), "failed")


def test_children_are_found_by_their_keys_when_some_have_failed(tx: Connection) -> None:
    parent = _parent(tx)
    _start(tx, parent, _tasks(3), keys=["a", "b", "c"])

    _end_all(tx, failed=(0,))

    assert _read(tx, parent)["error"]["keys"] == ["a", "b", "c"]


def test_a_child_that_is_deleted_has_ended_without_a_result(tx: Connection) -> None:
    parent = _parent(tx)
    deleted, *_ = _start(tx, parent, _tasks(3))
    act(tx, "delete_task", deleted["task_id"])
    _end_all(tx)

    found = _read(tx, parent)

    assert found["result"] == [1, 2]
    assert [how for _, _, how, _ in found["error"]["others"]] == ["deleted"]


@pytest.mark.parametrize("suspended", [True, False])
def test_of_a_large_join_that_is_open_nothing_is_read(tx: Connection, clock: Clock, suspended: bool) -> None:
    parent = _parent(tx)
    _start(tx, parent, _tasks(150))
    if suspended:
        until = clock.after(86400)
        end(tx, parent, "suspend", run_at=until, waits=[{"name": "pack", "until": until, "policy": "all"}])
        act(tx, "nudge", parent["task_id"])
        parent = claim_one(tx, queues=["run"])
    for task in claim(tx, queues=["work"], max_tasks=149):
        end(tx, task, result=1)

    found = _read(tx, parent)

    assert (found["number"], found["result"], found["error"]) == (150, None, {"open": 1})


def test_of_a_small_join_that_is_open_the_ends_are_read(tx: Connection) -> None:
    parent = _parent(tx)
    _start(tx, parent, _tasks(3))
    end(tx, claim_one(tx, queues=["work"]), result=7)

    found = _read(tx, parent)

    assert (found["result"], found["error"]["open"]) == ([7], 2)
    assert [number for number, *_ in found["error"]["others"]] == [2, 3]
