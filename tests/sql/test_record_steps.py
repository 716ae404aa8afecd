"""queues.record_steps and read_steps: facts of a run, under its lease, the first write wins."""

import json
from typing import Any

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    JsonText,
    Row,
    act,
    answer,
    call,
    change_setting,
    claim_one,
    end,
    enqueue,
    held,
    refused,
    rows,
    status,
    sweep,
)


def record(tx: Connection, task: Row, *steps: Row, worker_id: str = "w1", **more: Any) -> Row:
    (row,) = call(
        tx, "queues.record_steps", {"worker_id": worker_id, "runs": held(task, steps=list(steps), **more)}
    )
    return row


def step(name: str, number: int = 1, kind: str = "step", **more: Any) -> Row:
    return {"name": name, "number": number, "kind": kind, **more}


def read(tx: Connection, task: Row, worker_id: str = "w1") -> list[Row]:
    found = call(tx, "queues.read_steps", {"worker_id": worker_id, "held": held(task)})
    return [row for row in found if row["fact"] != "run"]


def _claimed(tx: Connection, **arguments: Any) -> Row:
    enqueue(tx, **arguments)
    return claim_one(tx)


def test_a_step_is_recorded_and_read_again(tx: Connection) -> None:
    task = _claimed(tx)

    assert record(tx, task, step("charge", result={"id": 7}))["verdict"] == "recorded"

    (fact,) = read(tx, task)
    assert (fact["fact"], fact["name"], fact["kind"], fact["result"]) == ("step", "charge", "step", {"id": 7})


def test_the_first_write_wins_and_the_second_gets_what_is_stored(tx: Connection) -> None:
    task = _claimed(tx)
    record(tx, task, step("charge", result=1))

    again = record(tx, task, step("charge", result=2), step("ship", 2, result=3))

    assert again["verdict"] == "already"
    assert [(row["name"], row["result"]) for row in again["stored"]] == [("charge", 1)]
    assert sorted((row["name"], row["result"]) for row in read(tx, task)) == [("charge", 1), ("ship", 3)]


def test_a_name_or_a_signal_that_a_report_has_twice_does_not_fail_the_others(tx: Connection) -> None:
    """A worker in another language could not find out which report of its batch is refused."""
    task, other = _claimed(tx), _claimed(tx)
    answer(tx, "queues.signal", {"task_id": task["task_id"], "name": "go"})
    (signal,) = rows(tx, "select signal_id from queues.signal")
    taken = {"kind": "signal", "signal_id": signal["signal_id"]}
    steps = [
        step("charge", 1, result=1),
        step("charge", 2, result=2),
        step("go", 3, **taken),
        step("go again", 4, **taken),
    ]
    runs = held(task, steps=steps) + held(other, steps=[step("ship", 1, result=3)])

    call(tx, "queues.record_steps", {"worker_id": "w1", "runs": runs})
    record(tx, task, step("later", 5, **taken))

    assert sorted((row["name"], row["result"]) for row in read(tx, task)) == [("charge", 1), ("go", None)]
    assert [(row["name"], row["result"]) for row in read(tx, other)] == [("ship", 3)]


def record_one(tx: Connection, task: Row, name: str = "charge", worker_id: str = "w1", **more: Any) -> bool:
    given = {"name": name, "number": 1, "took_ms": 0, "result": None, **more}
    held_by = {"worker_id": worker_id, "task_id": task["task_id"], "token": task["token"]}
    for document in ("result", "arguments"):
        if document in given and not isinstance(given[document], JsonText):
            given[document] = JsonText(json.dumps(given[document]))
    recorded: bool = answer(tx, "queues.record_step", {**held_by, **given})
    return recorded


@pytest.mark.parametrize(
    "more",
    [
        {"result": 7},
        {"result": None},
        {"result": {"id": 7, "text": "ä"}, "number": 1200, "took_ms": 12},
        {"result": "x" * 300, "took_ms": -5},
        {"result": "x" * 4000},
        {"result": 7, "arguments": {"order_id": 42}},
    ],
)
def test_a_step_that_comes_alone_is_stored_as_in_a_batch(tx: Connection, more: Row) -> None:
    alone, other = _claimed(tx), _claimed(tx)

    assert record_one(tx, alone, **more)
    assert record(tx, other, {**step("charge"), **more})["verdict"] == "recorded"

    columns = "number, took_ms, tries, kind, name, result, error, until, signal_id, arguments"
    first, second = rows(tx, f"select {columns} from queues.step")
    assert first == second


@pytest.mark.parametrize("result", [f'"{5000 * "x"}"', "1" + 400 * "0", 70 * "[" + 70 * "]"])
def test_a_result_that_needs_a_closer_look_is_not_recorded_alone(tx: Connection, result: str) -> None:
    assert not record_one(tx, _claimed(tx), result=JsonText(result))
    assert rows(tx, "select from queues.step") == []


def test_arguments_that_are_too_large_are_not_stored(tx: Connection) -> None:
    task, large = _claimed(tx), {"order_id": "x" * 5000}

    assert not record_one(tx, task, arguments=large)
    assert record(tx, task, step("charge", result=1, arguments=large))["verdict"] == "recorded"

    [stored] = rows(tx, "select result, arguments from queues.step_status")
    assert (stored["result"], stored["arguments"]["holdfast"]) == (1, "not stored")


def test_a_step_that_comes_alone_is_recorded_only_under_the_lease(tx: Connection) -> None:
    task, cancelled = _claimed(tx), _claimed(tx)
    act(tx, "cancel", cancelled["task_id"])

    assert not record_one(tx, task, worker_id="w2")
    assert not record_one(tx, {**task, "token": task["token"] + 1})
    assert not record_one(tx, cancelled)
    assert rows(tx, "select from queues.step") == []


def test_a_step_that_comes_alone_never_replaces_another(tx: Connection) -> None:
    task = _claimed(tx)
    assert record_one(tx, task, result=1)

    with refused(tx, "23505", "one_end_per_step"):
        record_one(tx, task, result=2)

    assert [row["result"] for row in read(tx, task)] == [1]


def test_a_step_that_comes_alone_counts_towards_the_maximum(tx: Connection) -> None:
    change_setting(tx, "max_steps", 1500)
    task = _claimed(tx)

    assert record_one(tx, task, "last", number=1500)
    assert not record_one(tx, task, "one too many", number=1501)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "magic"},
        {"kind": None},
        {"name": None},
        {"name": ""},
        {"name": "x" * 12_800},
        {"number": None},
        {"number": -5},
    ],
)
def test_a_step_that_cannot_be_is_refused(tx: Connection, wrong: Row) -> None:
    task = _claimed(tx)
    with refused(tx, "QF400", "cannot be recorded"):
        record(tx, task, step("first"), step("charge", 2) | wrong)
    with refused(tx, "QF400", "cannot be recorded"):
        record(
            tx, task, {name: given for name, given in (step("charge") | wrong).items() if given is not None}
        )


@pytest.mark.parametrize(
    "wrong", [{"name": None}, {"name": ""}, {"name": "x" * 3000}, {"try": None}, {"try": -1}]
)
def test_a_try_that_cannot_be_is_refused(tx: Connection, wrong: Row) -> None:
    with refused(tx, "QF400", "cannot be recorded"):
        record(tx, _claimed(tx), tries=[{"name": "charge", "try": 1} | wrong])


@pytest.mark.parametrize(
    "wrong", [{"name": None}, {"name": ""}, {"name": "x" * 12_800}, {"number": None}, {"number": -5}]
)
def test_a_step_that_cannot_be_is_left_to_the_closer_look(tx: Connection, wrong: Row) -> None:
    assert not record_one(tx, _claimed(tx), **wrong)
    assert rows(tx, "select from queues.step") == []


def test_a_long_name_is_recorded(tx: Connection) -> None:
    task = _claimed(tx)
    assert record_one(tx, task, "ä" * 150)
    assert record(tx, task, step("ö" * 150, 2))["verdict"] == "recorded"


def test_two_claims_that_write_the_same_step_leave_the_first_one(tx: Connection, clock: Clock) -> None:
    first = _claimed(tx)
    record(tx, first, step("charge", result="first"))
    clock.advance(31)
    sweep(tx)
    second = claim_one(tx, "w2")

    assert record(tx, first, step("ship", 2))["verdict"] == "lost"
    again = record(tx, second, step("charge", result="second"), worker_id="w2")

    assert (again["verdict"], again["stored"][0]["result"]) == ("already", "first")
    assert [row["name"] for row in read(tx, second, "w2")] == ["charge"]


def test_a_worker_without_the_lease_neither_records_nor_reads(tx: Connection) -> None:
    task = _claimed(tx)
    record(tx, task, step("charge", result="secret"))

    assert record(tx, task, step("ship"), worker_id="w2")["verdict"] == "lost"
    assert record(tx, {**task, "token": task["token"] + 1}, step("ship"))["verdict"] == "lost"
    assert [row["fact"] for row in read(tx, task, "w2")] == ["lost"]
    assert [row["name"] for row in rows(tx, "select name from queues.step")] == ["charge"]


def test_a_cancelled_run_records_nothing(tx: Connection) -> None:
    task = _claimed(tx)
    act(tx, "cancel", task["task_id"])

    assert record(tx, task, step("charge"))["verdict"] == "cancelled"
    assert rows(tx, "select from queues.step") == []


def test_a_failed_try_is_kept_with_the_time_of_the_next(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    tries = [{"name": "charge", "try": n, "retry_at": clock.after(n), "error": {"kind": "E"}} for n in (1, 2)]

    call(tx, "queues.record_steps", {"worker_id": "w1", "runs": held(task, tries=tries)})

    (fact,) = read(tx, task)
    assert (fact["fact"], fact["name"], fact["number"]) == ("try", "charge", 2)
    assert fact["until"] == clock.after(2)


def test_a_result_that_cannot_be_read_back_becomes_an_error(tx: Connection) -> None:
    change_setting(tx, "max_result_bytes", 5000)
    task = _claimed(tx)

    record(tx, task, step("big", result="x" * 6000), step("small", 2, result="x" * 4000))

    found = {row["name"]: row for row in read(tx, task)}
    assert found["big"]["result"] is None
    assert found["big"]["error"]["kind"] == "result_not_storable"
    assert found["small"]["error"] is None


def test_a_run_has_a_maximum_number_of_steps(tx: Connection) -> None:
    change_setting(tx, "max_steps", 1500)
    task = _claimed(tx)

    assert record(tx, task, step("last", 1500))["verdict"] == "recorded"
    with refused(tx, "QF413", "one too many", "1501", "at most 1500"):
        record(tx, task, step("one too many", 1501))


def test_a_claim_that_recorded_a_step_resets_the_count_of_attempts(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx, max_attempts=2)
    end(tx, task, "retry", run_at=clock.after(1))
    clock.advance(1)
    second = claim_one(tx)
    record(tx, second, step("charge"))

    end(tx, second, "retry", run_at=clock.after(1))

    assert (status(tx, task["task_id"])["status"], status(tx, task["task_id"])["attempt"]) == ("retrying", 1)
    clock.advance(1)
    third = claim_one(tx)
    end(tx, third, "retry")
    assert status(tx, task["task_id"])["status"] == "dead_letter"


def test_a_worker_that_died_after_a_step_uses_up_no_earlier_attempt(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx, max_attempts=2)
    end(tx, task, "retry", run_at=clock.after(1))
    clock.advance(1)
    record(tx, claim_one(tx), step("charge"))
    clock.advance(31)

    assert sweep(tx) == {"recovered": 1, "dead": 0}


def test_a_step_may_come_with_the_end_of_the_attempt(tx: Connection) -> None:
    task = _claimed(tx)

    assert end(tx, task, result=1, steps=[step("charge", result=2)]) == "accepted"

    assert [(row["name"], row["result"]) for row in rows(tx, "select name, result from queues.step")] == [
        ("charge", 2)
    ]
    assert status(tx, task["task_id"])["status"] == "succeeded"


def test_a_late_report_records_no_step(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    clock.advance(31)
    sweep(tx)

    assert end(tx, task, steps=[step("charge")]) == "lost"
    assert rows(tx, "select from queues.step") == []


def test_each_run_of_a_batch_gets_its_own_verdict(tx: Connection) -> None:
    known, new, foreign = (_claimed(tx) for _ in range(3))
    record(tx, known, step("charge"))
    batch = [
        {**held(task)[0], "steps": [step("charge")]}
        for task in (known, new, {**foreign, "token": foreign["token"] + 1})
    ]

    found = call(tx, "queues.record_steps", {"worker_id": "w1", "runs": batch})
    assert [row["verdict"] for row in found] == ["already", "recorded", "lost"]

    found = call(
        tx,
        "queues.record_steps",
        {"worker_id": "w1", "runs": [{**batch[1], "steps": [step("ship")]}, batch[2]]},
    )
    assert [(row["verdict"], row["stored"]) for row in found] == [("recorded", None), ("lost", None)]


def test_of_the_failed_tries_of_a_step_the_newest_fifty_stay(tx: Connection, clock: Clock) -> None:
    enqueue(tx)
    task = claim_one(tx)
    for number in range(1, 121):
        failed = {"name": "charge", "try": number, "tries": 1_000_001, "retry_at": clock.after(60)}
        record(tx, task, tries=[failed | {"error": {"kind": "Boom"}}])
    kept = rows(tx, "select min(step_try), max(step_try), count(*) from queues.error where step = 'charge'")
    assert kept == [{"min": 71, "max": 120, "count": 50}]
    [last] = [fact for fact in read(tx, task) if fact["fact"] == "try"]
    assert last["number"] == 120


def _signal(tx: Connection, task: Row) -> int:
    call(tx, "queues.signal", {"task_id": task["task_id"], "name": "paid", "payload": 1})
    (sent,) = rows(tx, "select max(signal_id) as signal_id from queues.signal")
    return int(sent["signal_id"])


def test_a_step_takes_only_a_signal_of_its_own_task(tx: Connection) -> None:
    mine, other = _claimed(tx), _claimed(tx)
    ours, theirs = _signal(tx, mine), _signal(tx, other)
    with refused(tx, "QF400", f"signal {theirs} cannot be taken by a step of task {mine['task_id']}"):
        record(tx, mine, step("wait paid", kind="signal", signal_id=theirs))
    assert record(tx, mine, step("wait paid", kind="signal", signal_id=ours))["verdict"] == "recorded"
    assert record(tx, mine, step("wait paid", kind="signal", signal_id=ours))["verdict"] == "already"
    assert [row["fact"] for row in read(tx, other)] == ["unread"]


def test_a_step_that_names_the_signal_of_another_task_does_not_displace_the_step_that_takes_it(
    tx: Connection,
) -> None:
    mine, other = _claimed(tx), _claimed(tx)
    theirs = _signal(tx, other)
    record(tx, mine, step("charge", 0))
    takes: dict[str, Any] = {"kind": "signal", "signal_id": theirs}
    runs = held(mine, steps=[step("charge", 0, **takes)]) + held(other, steps=[step("wait paid", 1, **takes)])

    call(tx, "queues.record_steps", {"worker_id": "w1", "runs": runs})

    assert [(row["fact"], row["name"]) for row in read(tx, other)] == [("step", "wait paid")]
