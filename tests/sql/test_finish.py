"""queues.finish: how tasks end, one or many at a time, and which results are refused."""

import json
from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    act,
    change_setting,
    claim,
    claim_new,
    counts,
    end,
    enqueue_many,
    finish,
    heartbeat,
    held,
    refused,
    rows,
    status,
)


def test_succeeded_keeps_the_result(tx: Connection, clock: Clock) -> None:
    task = claim_new(tx)
    clock.advance(3)

    assert end(tx, task, "succeeded", result={"sum": 42}) == "accepted"

    now = status(tx, task["task_id"])
    assert (now["status"], now["result"], now["finished_at"]) == ("succeeded", {"sum": 42}, clock.now)
    assert (now["error"], now["lease_until"], now["worker_id"], now["attempt"]) == (None, None, "w1", 1)


def test_failed_ends_at_once_whatever_attempts_are_left(tx: Connection, clock: Clock) -> None:
    task = claim_new(tx, max_attempts=9)

    assert end(tx, task, "failed", error={"kind": "no_handler_registered", "message": "none"}) == "accepted"

    now = status(tx, task["task_id"])
    assert (now["status"], now["last_error"], now["reason"]) == ("failed", "none", "none")
    assert now["error"]["kind"] == "no_handler_registered"
    assert claim(tx) == []


def test_cancelled_ends_it_with_the_workers_reason(tx: Connection) -> None:
    task = claim_new(tx)

    assert end(tx, task, "cancelled", error="not wanted any more") == "accepted"
    assert status(tx, task["task_id"])["status"] == "cancelled"
    assert status(tx, task["task_id"])["reason"] == "not wanted any more"


def test_a_batch_may_be_mixed_and_its_verdicts_come_in_its_order(tx: Connection, clock: Clock) -> None:
    enqueue_many(tx, [{"type": "default.work", "payload": {"n": n}} for n in range(7)])
    tasks = claim(tx, max_tasks=7)
    act(tx, "cancel", tasks[5]["task_id"])
    end(tx, tasks[6])
    given = ["failed", "snooze", "succeeded", "cancelled", "retry", "succeeded", "succeeded"]
    results = [
        {**held(task)[0], "status": ending, "result": {"n": n}, "run_at": clock.after(9)}
        for n, (task, ending) in enumerate(zip(tasks, given, strict=True))
    ]
    unknown = {"task_id": "00000000-0000-7000-8000-000000000000", "token": 1, "status": "succeeded"}

    verdicts = finish(tx, [unknown, *results[::-1]])

    assert verdicts == ["lost", "already_done", "cancelled", *["accepted"] * 5]
    assert [status(tx, task["task_id"])["status"] for task in tasks] == [
        *("failed", "scheduled", "succeeded", "cancelled", "retrying", "cancelled", "succeeded"),
    ]
    assert status(tx, tasks[2]["task_id"])["result"] == {"n": 2}


def test_a_batch_that_all_succeeded_answers_in_its_order(tx: Connection) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 20)
    tasks = claim(tx, max_tasks=20)[::-1]

    answers = rows(
        tx,
        "select * from queues.finish('w1', %s::jsonb)",
        [json.dumps(held(*tasks, status="succeeded"), default=str)],
    )

    assert [answer["task_id"] for answer in answers] == [task["task_id"] for task in tasks]
    assert {answer["verdict"] for answer in answers} == {"accepted"}


def test_an_empty_batch_is_fine(tx: Connection) -> None:
    assert finish(tx, []) == []


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_a_task_named_twice_is_settled_once(tx: Connection, clock: Clock, ending: str) -> None:
    task = claim_new(tx)
    result = held(task, status=ending, run_at=clock.after(60))[0]

    assert sorted(finish(tx, [result, result])) == ["accepted", "already_done"]


@pytest.mark.parametrize(("ending", "parked"), [("retry", True), ("snooze", True), ("succeeded", False)])
def test_a_task_deleted_while_it_ran_ends_or_is_parked(tx: Connection, ending: str, parked: bool) -> None:
    task = claim_new(tx)
    act(tx, "delete_task", task["task_id"])

    assert end(tx, task, ending) == "accepted"

    assert counts(tx)["ready"] == 0
    assert counts(tx)["outcome"] == (0 if parked else 1)
    assert status(tx, task["task_id"])["deleted_at"] is not None


@pytest.mark.parametrize("ending", ["succeeded", "failed"])
@pytest.mark.parametrize(("told", "kept"), [(-3600, 0), (3600, 5), (2, 2), (None, 0)])
def test_started_at_is_kept_between_the_claim_and_now(
    tx: Connection, clock: Clock, ending: str, told: float | None, kept: float
) -> None:
    task = claim_new(tx)
    told_at, kept_at = None if told is None else clock.after(told), clock.after(kept)
    clock.advance(5)

    end(tx, task, ending, started_at=told_at)

    assert status(tx, task["task_id"])["started_at"] == kept_at


def test_what_a_heartbeat_said_of_the_start_stands(tx: Connection, clock: Clock) -> None:
    task = claim_new(tx)
    started = clock.advance(1)
    heartbeat(tx, held(task, started_at=started))
    clock.advance(1)

    end(tx, task, started_at=clock.now)

    assert status(tx, task["task_id"])["started_at"] == started


@pytest.mark.parametrize("given", [None, {}, 7, "text"])
def test_what_is_not_an_array_is_refused(tx: Connection, given: Any) -> None:
    with refused(tx, "QF400", "results"):
        finish(tx, given)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"status": "done"}, "results[1].status"),
        ({"status": None}, "results[1].status"),
        ({"status": 7}, "results[1].status"),
        ({"status": ["succeeded"]}, "results[1].status"),
        ({"task_id": None}, "results[1].task_id"),
        ({"token": None}, "results[1].token"),
    ],
)
def test_a_result_that_cannot_be_meant_refuses_the_whole_batch(
    tx: Connection, wrong: dict[str, Any], named: str
) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 2)
    tasks = claim(tx, max_tasks=2)
    results = held(*tasks, status="succeeded")

    with refused(tx, "QF400", named):
        finish(tx, [results[0], {**results[1], **wrong}])


@pytest.mark.parametrize("missing", ["status", "task_id", "token"])
def test_a_result_that_lacks_a_member_refuses_the_whole_batch(tx: Connection, missing: str) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 2)
    one, other = held(*claim(tx, max_tasks=2), status="succeeded")
    del other[missing]

    with refused(tx, "QF400", f"results[1].{missing}"):
        finish(tx, [one, other])


@pytest.mark.parametrize("element", [None, 7, "text", []])
def test_an_element_that_is_not_an_object_refuses_the_whole_batch(tx: Connection, element: Any) -> None:
    task = claim_new(tx)

    with refused(tx, "QF400", "results[1]"):
        finish(tx, [*held(task, status="succeeded"), element])


@pytest.mark.parametrize(
    ("ending", "wrong"),
    [
        *(
            (ending, wrong)
            for ending in ("succeeded", "retry")
            for wrong in ({"task_id": "no uuid"}, {"token": "many"}, {"token": 1e30}, {"started_at": "soon"})
        ),
        ("retry", {"run_at": "soon"}),
        ("retry", {"run_at": "2026-02-30T00:00:00Z"}),
    ],
)
def test_a_member_of_another_type_refuses_the_whole_batch(
    tx: Connection, ending: str, wrong: dict[str, Any]
) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 2)
    tasks = claim(tx, max_tasks=2)
    results = held(*tasks, status=ending)
    before = counts(tx)

    with pytest.raises(psycopg.DataError), tx.transaction():
        finish(tx, [results[0], {**results[1], **wrong}])
    assert counts(tx) == before


def test_a_batch_over_the_limit_is_refused(tx: Connection) -> None:
    change_setting(tx, "max_batch", 1000)
    results = [{"task_id": "00000000-0000-7000-8000-000000000000", "token": 1, "status": "succeeded"}] * 1001

    assert finish(tx, results[:1000]) == ["lost"] * 1000
    with refused(tx, "QF413", "results has 1001 elements"):
        finish(tx, results)


def test_members_that_the_engine_does_not_know_do_no_harm(tx: Connection) -> None:
    task = claim_new(tx)

    assert end(tx, task, colour="red") == "accepted"
