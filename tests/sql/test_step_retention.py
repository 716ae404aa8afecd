"""The policy for steps: what ended runs remember is removed, and nothing runs twice because of it."""

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
    held,
    refused,
    rows,
    status,
    value,
)

DAY = 86400
OF_RUNS = ["step", "error where step is not null", "signal", "child"]


def run(tx: Connection, type_: str = "run.order", status: str | None = "failed") -> Row:
    """A run with a step, a failed try, a signal and a child, which has ended."""
    enqueue(tx, type_)
    task = claim_one(tx, queues=["run"])
    of = {"task_id": task["task_id"], "token": task["token"], "name": "pack", "number": 2}
    call(tx, "queues.start_children", {"worker_id": "w1", "held": of, "tasks": [{"type": "work.pack"}]})
    call(tx, "queues.signal", {"task_id": task["task_id"], "name": "go"})
    steps = [{"name": "charge", "number": 1, "kind": "step", "result": 7}]
    tries = [{"name": "charge", "try": 1, "error": {"message": "no"}}]
    call(tx, "queues.record_steps", {"worker_id": "w1", "runs": held(task, steps=steps, tries=tries)})
    if status is not None:
        end(tx, task, status)
    return task


def prune(tx: Connection, **more: Any) -> Row:
    (answer,) = call(tx, "queues.prune", {"status": "steps", **more})
    return answer


def facts(tx: Connection) -> list[int]:
    return [value(tx, f"select count(*) from queues.{table}") for table in OF_RUNS]


def test_steps_are_removed_seven_days_after_the_end_and_the_run_stays(tx: Connection, clock: Clock) -> None:
    task = run(tx)
    clock.advance(6 * DAY)
    assert (prune(tx)["pruned"], facts(tx)) == (0, [2, 1, 1, 1])

    clock.advance(2 * DAY)
    assert (prune(tx, dry_run=True)["pruned"], facts(tx)) == (1, [2, 1, 1, 1])
    assert (prune(tx)["pruned"], facts(tx)) == (1, [1, 0, 0, 0])
    assert prune(tx)["pruned"] == 0
    found = rows(tx, "select kind, name from queues.step_status where task_id = %s", [task["task_id"]])
    assert found == [{"kind": "removed", "name": "2 steps"}]
    assert status(tx, task["task_id"])["status"] == "failed"


def test_a_run_that_has_not_ended_keeps_its_steps(tx: Connection, clock: Clock) -> None:
    task = run(tx, status=None)
    end(
        tx,
        task,
        "suspend",
        run_at=clock.after(90 * DAY),
        waits=[{"name": "go", "until": clock.after(90 * DAY)}],
    )
    clock.advance(60 * DAY)
    assert (prune(tx)["pruned"], facts(tx)) == (0, [2, 1, 1, 1])


def test_a_fork_keeps_its_own_steps(tx: Connection, clock: Clock) -> None:
    task = run(tx)
    (fork,) = call(tx, "queues.fork", {"task_id": task["task_id"]})
    clock.advance(8 * DAY)
    assert prune(tx)["pruned"] == 1
    query = "select name from queues.step where task_id = %s order by number"
    assert [row["name"] for row in rows(tx, query, [fork["fork"]])] == ["charge", "pack"]


@pytest.mark.parametrize("function", ["retry", "fork"])
def test_a_run_without_its_steps_does_not_go_on(tx: Connection, clock: Clock, function: str) -> None:
    task = run(tx)
    clock.advance(8 * DAY)
    prune(tx)
    with refused(tx, "QF412", "retention has removed the steps"):
        act(tx, function, task["task_id"])
    assert act(tx, "replay", task["task_id"])


def test_a_type_may_keep_its_steps_longer(tx: Connection, clock: Clock) -> None:
    run(tx)
    kept = run(tx, "run.audit")
    call(tx, "queues.set_retention", {"status": "steps", "keep": "60 days", "type_prefix": "run.audit"})
    clock.advance(8 * DAY)
    assert prune(tx)["pruned"] == 1
    left = "select distinct task_id from queues.step where kind <> 'r'"
    assert rows(tx, left) == [{"task_id": kept["task_id"]}]


def test_it_goes_on_where_it_stopped(tx: Connection, clock: Clock) -> None:
    for _ in range(5):
        run(tx)
    clock.advance(8 * DAY)
    pruned, past = 0, None
    for _ in range(3):
        answer = prune(tx, max_tasks=2, past=past)
        pruned, past = pruned + answer["pruned"], answer["next"]
    assert (pruned, past) == (5, None)


def test_what_may_remove_facts_leaves_no_setting_behind(tx: Connection, clock: Clock) -> None:
    run(tx)
    enqueue(tx, "run.order")
    tries = [{"name": "charge", "try": 51, "error": {"message": "no"}}]
    many_tries = {"worker_id": "w1", "runs": held(claim_one(tx, queues=["run"]), tries=tries)}
    tx.execute("set local holdfast.retention = 'as it was'")

    def left_behind(function: str, **arguments: Any) -> Any:
        call(tx, function, arguments)
        return value(tx, "select current_setting('holdfast.retention')")

    assert left_behind("queues.record_steps", **many_tries) == "as it was"
    clock.advance(400 * DAY)
    for status_ in ("steps", "failed", "history"):
        assert left_behind("queues.prune", status=status_) == "as it was"
    assert left_behind("queues.prune_firings") == "as it was"
    assert left_behind("queues.prune_events") == "as it was"
