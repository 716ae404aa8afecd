"""Children: started under the lease of their parent, and joined by a pointer that every ending moves."""

from typing import Any

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    Row,
    act,
    answer,
    call,
    claim,
    claim_one,
    counts,
    end,
    enqueue,
    held,
    refused,
    rows,
    status,
    sweep,
)


def _parent(tx: Connection, **arguments: Any) -> Row:
    enqueue(tx, "run.parent", **arguments)
    return claim_one(tx, queues=["run"])


def start(
    tx: Connection, parent: Row, *tasks: Row, name: str = "pack", worker_id: str = "w1", **more: Any
) -> list[Row]:
    of = {"task_id": parent["task_id"], "token": parent["token"], "name": name, "number": 1, "awaited": True}
    arguments = {"worker_id": worker_id, "held": {**of, **more}, "tasks": list(tasks)}
    return call(tx, "queues.start_children", arguments)


def pack(count: int, **more: Any) -> list[Row]:
    return [{"type": "work.pack", "payload": {"n": n}, **more} for n in range(count)]


def suspend(tx: Connection, parent: Row, clock: Clock, name: str = "pack") -> None:
    until = clock.after(86400)
    assert (
        end(tx, parent, "suspend", waits=[{"name": name, "until": until, "policy": "all"}], run_at=until)
        == "accepted"
    )
    wake_waiting(tx, parent["task_id"])


def wake_waiting(tx: Connection, *task_ids: Any) -> None:
    answer(tx, "queues.wake_waiting", {"task_ids": list(task_ids)})


def wake_joined(tx: Connection, *task_ids: Any) -> Any:
    return answer(tx, "queues.wake_joined", {"task_ids": list(task_ids)})


def pointer(tx: Connection, parent: Row) -> Any:
    (row,) = rows(tx, "select on_task from queues.wait where task_id = %s", [parent["task_id"]])
    return row["on_task"]


def ends(tx: Connection, parent: Row) -> list[str]:
    again = claim_one(tx, queues=["run"])
    assert again["task_id"] == parent["task_id"]
    facts = call(tx, "queues.read_steps", {"worker_id": "w1", "held": held(again)})
    (found,) = (row for row in facts if row["fact"] == "children")
    others = {number: how for number, _, how, _ in found["error"]["others"] or ()}
    assert len(others) + len(found["result"] or ()) == found["number"]
    return [others.get(n, "succeeded") for n in range(1, found["number"] + 1)]


def test_children_belong_to_the_namespace_and_the_client_of_their_parent(tx: Connection) -> None:
    tx.execute(
        "select queues.insert_tasks(%s, false, 'shop_app', 'shop')",
        ['[{"type": "run.parent"}]'],
    )
    parent = claim_one(tx, queues=["run"])

    started = start(tx, parent, *pack(2))

    found = rows(
        tx,
        "select namespace, enqueued_by, payload from queues.task where task_id = any(%s) order by task_id",
        [[row["task_id"] for row in started]],
    )
    assert [row["verdict"] for row in started] == ["started", "started"]
    assert found == [{"namespace": "shop", "enqueued_by": "shop_app", "payload": {"n": n}} for n in range(2)]


def test_repeating_the_call_returns_the_same_children(tx: Connection) -> None:
    parent = _parent(tx)
    first = start(tx, parent, *pack(2))
    before = counts(tx)

    again = start(tx, parent, *pack(3))

    assert [row["task_id"] for row in again] == [row["task_id"] for row in first]
    assert {row["verdict"] for row in again} == {"already"}
    assert counts(tx) == before


@pytest.mark.parametrize(("worker_id", "token"), [("w2", 0), ("w1", 1)])
def test_without_the_lease_nothing_is_started(tx: Connection, worker_id: str, token: int) -> None:
    parent = _parent(tx)
    before = counts(tx)

    (row,) = start(tx, {**parent, "token": parent["token"] + token}, *pack(1), worker_id=worker_id)

    assert (row["verdict"], row["task_id"]) == ("lost", None)
    assert counts(tx) == before


def test_a_cancelled_parent_starts_nothing(tx: Connection) -> None:
    parent = _parent(tx)
    act(tx, "cancel", parent["task_id"])

    (row,) = start(tx, parent, *pack(1))
    assert row["verdict"] == "cancelled"


def test_a_child_may_use_only_executors_that_a_plain_client_may_use(tx: Connection) -> None:
    parent = _parent(tx)
    with refused(tx, "QF403"):
        start(tx, parent, *pack(1, executor="db_function"))


def test_a_run_may_start_a_bounded_number_of_tasks(tx: Connection) -> None:
    parent = _parent(tx)
    tx.execute("update queues.setting set value = 3 where name = 'max_children'")
    start(tx, parent, *pack(2))
    with refused(tx, "QF413", "has started 2 tasks"):
        start(tx, parent, *pack(2), name="pack#2")


def test_a_step_that_does_not_wait_is_recorded_with_its_children(tx: Connection) -> None:
    parent = _parent(tx)
    (child,) = start(tx, parent, *pack(1), awaited=False)

    (step,) = rows(tx, "select name, result from queues.step where task_id = %s", [parent["task_id"]])
    assert step == {"name": "pack", "result": {"task_ids": [str(child["task_id"])]}}


def test_the_pointer_names_the_first_child_that_has_not_ended(tx: Connection, clock: Clock) -> None:
    parent = _parent(tx)
    started = [row["task_id"] for row in start(tx, parent, *pack(3))]
    suspend(tx, parent, clock)
    assert pointer(tx, parent) == started[0]

    one, two, three = claim(tx, queues=["work"], max_tasks=3)
    end(tx, two)
    assert wake_joined(tx, two["task_id"]) == []
    assert pointer(tx, parent) == started[0]
    end(tx, one)
    assert wake_joined(tx, one["task_id"]) == [parent["task_id"]]
    assert pointer(tx, parent) == started[2]
    assert claim(tx, queues=["run"]) == []
    end(tx, three)
    assert wake_joined(tx, three["task_id"]) == []
    assert ends(tx, parent) == ["succeeded"] * 3


def test_without_joins_a_look_says_so(tx: Connection) -> None:
    task = _parent(tx)
    end(tx, task)
    assert wake_joined(tx, task["task_id"]) is None


@pytest.mark.parametrize(
    ("how", "ending"),
    [
        ("failed", "failed"),
        ("retry", "dead_letter"),
        ("cancelled", "cancelled"),
        ("cancel", "cancelled"),
        ("delete_task", "deleted"),
        ("expire", "dead_letter"),
        ("remove", "removed"),
    ],
)
def test_every_ending_of_a_child_ends_the_wait(tx: Connection, clock: Clock, how: str, ending: str) -> None:
    parent = _parent(tx)
    start(tx, parent, *pack(1, max_attempts=1))
    suspend(tx, parent, clock)
    (child,) = claim(tx, queues=["work"])
    if how in ("cancel", "delete_task"):
        act(tx, how, child["task_id"])
    elif how == "expire":
        clock.advance(3600)
    elif how == "remove":
        end(tx, child)
        tx.execute("select queues.forget_tasks(%s)", [[child["task_id"]]])
    else:
        end(tx, child, how)
    sweep(tx)
    sweep(tx)

    assert ends(tx, parent) == [ending]


def test_a_sweep_looks_for_a_worker_that_died_after_its_finish(tx: Connection, clock: Clock) -> None:
    parent = _parent(tx)
    start(tx, parent, *pack(1))
    suspend(tx, parent, clock)
    (child,) = claim(tx, queues=["work"])
    end(tx, child)
    tx.execute(
        "delete from queues.chore"
    )  # as if the wait had been committed between its look and its commit

    sweep(tx)
    assert ends(tx, parent) == ["succeeded"]


def test_a_child_that_continues_ends_with_its_last_run(tx: Connection, clock: Clock) -> None:
    parent = _parent(tx)
    start(tx, parent, *pack(1))
    suspend(tx, parent, clock)
    (child,) = claim(tx, queues=["work"])
    end(tx, child, "continue", payload={"n": 2})
    wake_joined(tx, child["task_id"])
    assert claim(tx, queues=["run"]) == []

    (following,) = claim(tx, queues=["work"])
    end(tx, following, result="done")
    wake_joined(tx, following["task_id"])
    assert ends(tx, parent) == ["succeeded"]
    (children,) = rows(tx, "select results from queues.children_of(%s)", [parent["task_id"]])
    assert children["results"] == ["done"]


def test_cancelling_a_run_cancels_the_children_that_it_waits_for(tx: Connection, clock: Clock) -> None:
    parent = _parent(tx)
    waiting, running = (row["task_id"] for row in start(tx, parent, *pack(2)))
    (left,) = start(tx, parent, *pack(1), name="other", leave=True)
    (loose,) = start(tx, parent, *pack(1), name="loose", awaited=False)
    claim(tx, queues=["work"], max_tasks=1)

    act(tx, "cancel", parent["task_id"])
    sweep(tx)

    assert [status(tx, task_id)["status"] for task_id in (waiting, running)] == ["cancelled", "cancelled"]
    assert f"its parent {parent['task_id']}" in status(tx, waiting)["reason"]
    assert [status(tx, row["task_id"])["status"] for row in (left, loose)] == ["pending", "pending"]
    assert rows(tx, "select from queues.wait") == rows(tx, "select from queues.chore") == []


def _joined(tx: Connection, *results: Any) -> Row:
    """A claimed run whose children have ended with these results."""
    parent = _parent(tx)
    start(tx, parent, *pack(len(results)))
    for task, result in zip(claim(tx, queues=["work"], max_tasks=len(results)), results, strict=True):
        end(tx, task, "succeeded", result=result)
    return parent


def _page(tx: Connection, parent: Row, after: int, worker_id: str = "w1") -> list[tuple[int, str]]:
    of = {"task_id": parent["task_id"], "token": parent["token"], "step": "pack", "after_number": after}
    return [
        (row["number"], row["result"][0])
        for row in call(tx, "queues.read_results", {"worker_id": worker_id, **of})
    ]


def test_large_results_of_children_are_read_in_pages(tx: Connection) -> None:
    parent = _joined(tx, *(f"{n}{'a' * 1_000_000}" for n in range(7)))

    facts = call(tx, "queues.read_steps", {"worker_id": "w1", "held": held(parent)})

    (found,) = (row for row in facts if row["fact"] == "children")
    assert (found["number"], found["result"], found["error"]["paged"]) == (7, None, True)
    assert _page(tx, parent, 0) == [(n, str(n - 1)) for n in range(1, 6)]
    assert _page(tx, parent, 5) == [(6, "5"), (7, "6")]
    assert _page(tx, parent, 7) == []
    assert _page(tx, parent, 0, "w2") == []


def test_results_of_children_that_are_compressed_count_as_large(tx: Connection) -> None:
    parent = _joined(tx, *("a" * 200_000 for _ in range(30)))

    facts = call(tx, "queues.read_steps", {"worker_id": "w1", "held": held(parent)})

    (found,) = (row for row in facts if row["fact"] == "children")
    assert (found["result"], found["error"]["paged"]) == (None, True)


def test_children_of_children_are_cancelled_too(tx: Connection, clock: Clock) -> None:
    parent = _parent(tx)
    start(tx, parent, *pack(1))
    (child,) = claim(tx, queues=["work"])
    (grandchild,) = start(tx, child, *pack(1))

    act(tx, "cancel", parent["task_id"])
    sweep(tx)
    assert status(tx, grandchild["task_id"])["status"] == "cancelled"


@pytest.mark.parametrize("how", ["failed", "cancelled", "retry", "expire"])
def test_a_run_that_ends_without_success_cancels_the_children_that_it_waits_for(
    tx: Connection, clock: Clock, how: str
) -> None:
    parent = _parent(tx, max_attempts=1)
    (child,) = start(tx, parent, *pack(1))
    (left,) = start(tx, parent, *pack(1), name="other", leave=True)
    if how == "expire":
        clock.advance(3600)
    else:
        end(tx, parent, how)
    sweep(tx)

    assert status(tx, child["task_id"])["status"] == "cancelled"
    assert f"its parent {parent['task_id']} ended" in status(tx, child["task_id"])["reason"]
    assert status(tx, left["task_id"])["status"] == "pending"


@pytest.mark.parametrize("how", ["succeeded", "retry"])
def test_children_go_on_if_their_run_succeeds_or_is_tried_again(tx: Connection, how: str) -> None:
    parent = _parent(tx)
    (child,) = start(tx, parent, *pack(1))
    end(tx, parent, how)
    sweep(tx)
    assert status(tx, child["task_id"])["status"] == "pending"


def test_a_deleted_run_leaves_its_children_until_retention_removes_it(tx: Connection, clock: Clock) -> None:
    parent = _parent(tx)
    (child,) = start(tx, parent, *pack(1))
    suspend(tx, parent, clock)
    act(tx, "delete_task", parent["task_id"])
    sweep(tx)
    assert status(tx, child["task_id"])["status"] == "pending"

    clock.advance(31 * 86400)
    call(tx, "queues.prune", {"status": "deleted"})
    sweep(tx)
    assert status(tx, child["task_id"])["reason"] == f"its parent {parent['task_id']} was deleted"


def test_a_retry_brings_back_the_children_that_ended_with_the_run_and_theirs(tx: Connection) -> None:
    parent = _parent(tx, max_attempts=1)
    started = start(tx, parent, *pack(3))
    first, second = claim(tx, queues=["work"], max_tasks=2)
    end(tx, first)
    (grandchild,) = start(tx, second, *pack(1))
    end(tx, parent, "failed")
    sweep(tx)

    act(tx, "retry", parent["task_id"])

    found = [status(tx, row["task_id"])["status"] for row in (*started, grandchild)]
    assert found == ["succeeded", "pending", "pending", "pending"]
    sweep(tx)
    assert status(tx, second["task_id"])["status"] == "pending"


def test_a_retry_before_the_children_are_cancelled_keeps_them(tx: Connection) -> None:
    parent = _parent(tx, max_attempts=1)
    (child,) = start(tx, parent, *pack(1))
    end(tx, parent, "failed")
    act(tx, "retry", parent["task_id"])
    sweep(tx)
    assert status(tx, child["task_id"])["status"] == "pending"


def test_a_join_that_is_over_cancels_what_it_no_longer_waits_for(tx: Connection) -> None:
    parent = _parent(tx)
    (child,) = start(tx, parent, *pack(1), name="race")
    step = {"name": "race", "number": 1, "kind": "first", "result": {}}
    call(tx, "queues.record_steps", {"worker_id": "w1", "runs": held(parent, steps=[step])})
    sweep(tx)
    assert status(tx, child["task_id"])["status"] == "cancelled"


def test_retention_keeps_children_of_a_run_that_has_not_ended(tx: Connection, clock: Clock) -> None:
    parent = _parent(tx)
    start(tx, parent, *pack(1))
    suspend(tx, parent, clock)
    (child,) = claim(tx, queues=["work"])
    end(tx, child)
    call(tx, "queues.set_retention", {"status": "succeeded", "keep": "1 day"})
    clock.advance(2 * 86400)

    (kept,) = call(tx, "queues.prune", {"status": "succeeded"})
    act(tx, "cancel", parent["task_id"])
    (pruned,) = call(tx, "queues.prune", {"status": "succeeded"})
    assert (kept["pruned"], pruned["pruned"]) == (0, 1)


def test_retention_keeps_every_run_of_a_child_that_continued(tx: Connection, clock: Clock) -> None:
    parent = _parent(tx)
    start(tx, parent, *pack(1))
    suspend(tx, parent, clock)
    for _ in range(2):
        end(tx, claim_one(tx, queues=["work"]), "continue", payload={})
    call(tx, "queues.set_retention", {"status": "succeeded", "keep": "1 hour"})
    clock.advance(2 * 3600)

    (kept,) = call(tx, "queues.prune", {"status": "succeeded"})
    sweep(tx)
    assert (kept["pruned"], claim(tx, queues=["run"])) == (0, [])

    end(tx, claim_one(tx, queues=["work"]), result=7)
    clock.advance(2 * 3600)
    (kept,) = call(tx, "queues.prune", {"status": "succeeded"})
    sweep(tx)
    assert (kept["pruned"], ends(tx, parent)) == (0, ["succeeded"])


@pytest.mark.parametrize("again", ["retry", "restore_task"])
def test_a_join_waits_for_a_child_that_is_open_again_after_the_pointer_passed_it(
    tx: Connection, clock: Clock, again: str
) -> None:
    parent = _parent(tx)
    one, two = start(tx, parent, *pack(2))
    suspend(tx, parent, clock)
    act(tx, "cancel" if again == "retry" else "delete_task", one["task_id"])
    sweep(tx)
    act(tx, again, one["task_id"])
    act(tx, "cancel", two["task_id"])
    sweep(tx)
    parent = claim_one(tx, queues=["run"])  # which reads that one child is open, and waits on

    suspend(tx, parent, clock)

    sweep(tx)
    assert (claim(tx, queues=["run"]), pointer(tx, parent)) == ([], one["task_id"])
    act(tx, "cancel", one["task_id"])
    sweep(tx)
    assert ends(tx, parent) == ["cancelled", "cancelled"]


@pytest.mark.parametrize(
    ("end_of_step", "becomes"), [({"error": {"kind": "timeout"}}, "cancelled"), ({}, "pending")]
)
def test_only_a_join_that_took_too_long_cancels_its_children(
    tx: Connection, end_of_step: Row, becomes: str
) -> None:
    """One that is over leaves a child alone that was retried since, also when the run fails."""
    parent = _parent(tx)
    (child,) = start(tx, parent, *pack(1))
    step = {"name": "pack", "number": 1, "kind": "children", **end_of_step}
    call(tx, "queues.record_steps", {"worker_id": "w1", "runs": held(parent, steps=[step])})
    sweep(tx)
    if becomes == "pending":
        end(tx, parent, "failed")
        sweep(tx)
    assert status(tx, child["task_id"])["status"] == becomes


@pytest.mark.parametrize("above", ["parent", "grandparent"])
def test_a_run_cannot_wait_for_itself(tx: Connection, above: str) -> None:
    parent = _parent(tx, idempotency_key="k")
    if above == "grandparent":
        start(tx, parent, {"type": "work.pack"})
        parent = claim_one(tx, queues=["work"])

    with refused(tx, "QF412", "waits for this run"):
        start(tx, parent, {"type": "run.parent", "idempotency_key": "k"}, name="again")
