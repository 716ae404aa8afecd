"""finish with suspend, and signals: a run that waits is a ready row, and no wake-up is lost."""

import json
from typing import Any

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    Row,
    act,
    answer,
    call,
    change_setting,
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


def _claimed(tx: Connection, **arguments: Any) -> Row:
    enqueue(tx, **arguments)
    return claim_one(tx)


def wait(name: str, until: Any, **more: Any) -> Row:
    return {"name": name, "until": until, **more}


def suspend(tx: Connection, task: Row, *waits: Row, **more: Any) -> str:
    return end(tx, task, "suspend", waits=list(waits), run_at=min(one["until"] for one in waits), **more)


def signal(
    tx: Connection, task_id: Any, name: str = "decision", payload: Any = 1, key: str | None = None
) -> str:
    found = answer(tx, "queues.signal", {"task_id": task_id, "name": name, "payload": payload, "key": key})
    return str(found)


def wake(tx: Connection, *task_ids: Any) -> int:
    return int(answer(tx, "queues.wake_waiting", {"task_ids": list(task_ids)}))


def test_a_suspended_run_is_ready_when_it_has_to_look_and_uses_no_attempt(
    tx: Connection, clock: Clock
) -> None:
    task = _claimed(tx)

    assert suspend(tx, task, wait("nap", clock.after(60)), wait("decision", clock.after(90))) == "accepted"

    now = status(tx, task["task_id"])
    assert (now["status"], now["run_at"], now["attempt"]) == ("suspended", clock.after(60), 0)
    assert claim(tx) == []
    clock.advance(60)
    assert status(tx, task["task_id"])["status"] == "pending"
    assert claim_one(tx)["attempt"] == 1


def test_a_repeated_suspension_changes_nothing(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    suspend(tx, task, wait("nap", clock.after(60)))
    before = counts(tx)

    assert suspend(tx, task, wait("other", clock.after(10))) == "already_done"
    assert counts(tx) == before


def test_a_late_suspension_changes_nothing(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    clock.advance(31)
    sweep(tx)
    before = counts(tx)

    assert suspend(tx, task, wait("nap", clock.after(60))) == "lost"
    assert counts(tx) == before


def test_a_signal_wakes_the_run_that_waits_for_it(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    suspend(tx, task, wait("decision", clock.after(60), signal="decision"))
    wake(tx, task["task_id"])

    assert signal(tx, task["task_id"], payload={"approved": True}) == "kept"

    again = claim_one(tx)
    facts = call(tx, "queues.read_steps", {"worker_id": "w1", "held": held(again)})
    assert [(row["name"], row["result"]) for row in facts if row["fact"] == "signal"] == [
        ("decision", {"approved": True})
    ]


def _untaken(tx: Connection, task: Row, **more: Any) -> list[tuple[Any, ...]]:
    facts = call(tx, "queues.read_steps", {"worker_id": "w1", "held": held(task, **more)})
    return [
        (row["name"], row["number"], row["result"]) for row in facts if row["fact"] in ("signal", "unread")
    ]


def test_only_signals_that_are_waited_for_or_asked_for_are_read(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    suspend(tx, task, wait("decision", clock.after(60), signal="decision"))
    wake(tx)
    for name, payload in (("note", 1), ("decision", 2), ("note", 3), ("call", 4)):
        signal(tx, task["task_id"], name, payload)

    again = claim_one(tx)

    assert sorted(_untaken(tx, again)) == [("call", 1, None), ("decision", None, 2), ("note", 2, None)]
    assert _untaken(tx, again, signals=["note"]) == [
        ("note", None, 1),
        ("decision", None, 2),
        ("note", None, 3),
        ("call", 1, None),
    ]


def test_of_many_large_signals_the_oldest_are_read(tx: Connection) -> None:
    task = _claimed(tx)
    for n in range(6):
        signal(tx, task["task_id"], payload=f"{n}{'a' * 250_000}")

    found = _untaken(tx, task, signals=["decision"])

    assert [(number, result and result[0]) for _, number, result in found] == [
        *((None, str(n)) for n in range(5)),
        (1, None),
    ]


def test_a_run_has_a_limit_of_untaken_signals(tx: Connection) -> None:
    change_setting(tx, "max_signals", 3)
    task = _claimed(tx)
    for n in range(3):
        assert signal(tx, task["task_id"], payload=n, key=str(n)) == "kept"

    with refused(tx, "QF429", "it has not taken"):
        signal(tx, task["task_id"], payload=3)
    assert signal(tx, task["task_id"], payload=2, key="2") == "replayed"

    (oldest,) = rows(tx, "select min(signal_id) as signal_id from queues.signal")
    step = {"name": "decision", "number": 1, "kind": "signal", **oldest, "result": 1}
    run = {"task_id": task["task_id"], "token": task["token"], "steps": [step]}
    call(tx, "queues.record_steps", {"worker_id": "w1", "runs": [run]})
    assert signal(tx, task["task_id"], payload=3) == "kept"
    with refused(tx, "QF429", "it has not taken"):
        signal(tx, task["task_id"], payload=4)


def test_the_untaken_signals_of_a_run_have_a_limit_of_bytes(tx: Connection) -> None:
    change_setting(tx, "max_signal_bytes", 1000)
    task, other = _claimed(tx), _claimed(tx)
    signal(tx, task["task_id"], payload="a" * 600)

    with refused(tx, "QF429", "1204 bytes"):
        signal(tx, task["task_id"], payload="a" * 600)
    assert signal(tx, other["task_id"], payload="a" * 600) == "kept"


def test_another_signal_does_not_wake_it(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    suspend(tx, task, wait("decision", clock.after(60), signal="decision"))

    assert signal(tx, task["task_id"], "other") == "kept"
    assert (wake(tx, task["task_id"]), claim(tx)) == (0, [])


def test_a_signal_that_came_before_the_suspension_is_found_by_the_look_after_it(
    tx: Connection, clock: Clock
) -> None:
    task = _claimed(tx)
    signal(tx, task["task_id"])
    sweep(tx)
    suspend(tx, task, wait("decision", clock.after(60), signal="decision"))

    assert wake(tx, task["task_id"]) == 1
    assert claim_one(tx)["task_id"] == task["task_id"]
    assert rows(tx, "select from queues.chore") == []


def test_a_sweep_looks_for_a_worker_that_died_after_the_suspension(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    signal(tx, task["task_id"])
    suspend(tx, task, wait("decision", clock.after(60), signal="decision"))

    sweep(tx)

    assert claim_one(tx)["task_id"] == task["task_id"]


def test_a_signal_that_a_step_has_taken_wakes_nothing(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    signal(tx, task["task_id"])
    (taken,) = rows(tx, "select signal_id from queues.signal")
    facts = [
        {"name": "decision", "number": 1, "kind": "signal", "signal_id": taken["signal_id"], "result": 1}
    ]
    suspend(tx, task, wait("decision#2", clock.after(60), signal="decision"), steps=facts)

    assert (wake(tx, task["task_id"]), claim(tx)) == (0, [])
    assert rows(tx, "select taken_by from queues.signal_status") == [{"taken_by": "decision"}]


def test_a_signal_to_a_failed_attempt_keeps_its_delay(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    suspend(tx, task, wait("decision", clock.after(60), signal="decision"))
    clock.advance(60)
    end(tx, claim_one(tx), "retry", run_at=clock.after(30))

    signal(tx, task["task_id"])
    sweep(tx)

    assert (claim(tx), status(tx, task["task_id"])["status"]) == ([], "retrying")


def test_a_wait_keeps_its_timeout_through_a_failed_attempt(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    timeout = clock.after(60)
    suspend(tx, task, wait("decision", timeout, signal="decision"))
    signal(tx, task["task_id"], "decision")
    end(tx, claim_one(tx), "retry", run_at=clock.after(1))
    clock.advance(1)

    suspend(tx, claim_one(tx), wait("decision", clock.after(60), signal="decision"))

    assert [row["until"] for row in rows(tx, "select until from queues.wait")] == [timeout]


def test_a_suspension_forgets_what_the_run_no_longer_waits_for(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    suspend(tx, task, wait("one", clock.after(1)), wait("two", clock.after(60)))
    clock.advance(1)

    suspend(tx, claim_one(tx), wait("two", clock.after(60)))

    assert [row["name"] for row in rows(tx, "select name from queues.wait_status")] == ["two"]


@pytest.mark.parametrize("ending", ["succeeded", "failed", "cancelled"])
def test_an_ended_run_waits_for_nothing(tx: Connection, clock: Clock, ending: str) -> None:
    task = _claimed(tx)
    suspend(tx, task, wait("nap", clock.after(1)))
    clock.advance(1)

    end(tx, claim_one(tx), ending, steps=[])

    assert rows(tx, "select from queues.wait") == []


def test_a_key_keeps_a_signal_once(tx: Connection) -> None:
    task_id = enqueue(tx)

    assert signal(tx, task_id, payload=1, key="hook-1") == "kept"
    assert signal(tx, task_id, payload=1, key="hook-1") == "replayed"
    assert signal(tx, task_id, payload=2, key="hook-1") == "conflict"
    assert signal(tx, task_id, payload=2, key="hook-2") == "kept"
    assert signal(tx, task_id, payload=1) == "kept"
    assert len(rows(tx, "select from queues.signal")) == 3


@pytest.mark.parametrize(
    ("payload", "code"),
    [("x" * 262_145, "QF413"), (json.loads("[" * 600 + "]" * 600), "QF422")],
)
def test_a_signal_has_the_limits_of_a_payload(tx: Connection, payload: Any, code: str) -> None:
    task_id = enqueue(tx)
    with refused(tx, code, "payload"):
        signal(tx, task_id, payload=payload)


def test_an_ended_run_takes_no_signal(tx: Connection) -> None:
    task = _claimed(tx)
    end(tx, task)

    assert signal(tx, task["task_id"]) == "ended"
    assert rows(tx, "select from queues.signal") == []


def test_a_run_is_signalled_by_its_type_and_key(tx: Connection) -> None:
    task_id = enqueue(tx, idempotency_key="order-7")
    by_key = {"type": "default.work", "idempotency_key": "order-7", "name": "decision", "payload": 5}

    assert answer(tx, "queues.signal_key", by_key) == "kept"
    assert rows(tx, "select task_id, payload from queues.signal") == [{"task_id": task_id, "payload": 5}]
    with refused(tx, "QF404", "order-8"):
        answer(tx, "queues.signal_key", {**by_key, "idempotency_key": "order-8"})


def test_a_cancelled_run_stays_ended_when_a_signal_comes(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    suspend(tx, task, wait("decision", clock.after(60), signal="decision"))
    act(tx, "cancel", task["task_id"])

    assert signal(tx, task["task_id"]) == "ended"
    assert status(tx, task["task_id"])["status"] == "cancelled"


def test_retention_removes_the_facts_of_a_run(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    signal(tx, task["task_id"])
    tries = [{"name": "charge", "try": 1, "error": {}}]
    facts = [{"name": "charge", "number": 1, "kind": "step"}]
    end(tx, task, steps=facts, tries=tries)
    clock.advance(8 * 86400)

    call(tx, "queues.prune", {"status": "succeeded"})

    left = counts(tx)
    assert {
        name: left[name] for name in ("task", "step", "error", "signal", "wait", "chore")
    } == dict.fromkeys(("task", "step", "error", "signal", "wait", "chore"), 0)


def test_a_run_that_is_restored_gets_the_signal_that_came_while_it_was_deleted(
    tx: Connection, clock: Clock
) -> None:
    task = _claimed(tx)
    suspend(tx, task, wait("decision", clock.after(86400), signal="decision"))
    act(tx, "delete_task", task["task_id"])
    assert signal(tx, task["task_id"]) == "kept"
    sweep(tx)
    assert claim(tx) == []

    act(tx, "restore_task", task["task_id"])
    sweep(tx)

    assert claim_one(tx)["task_id"] == task["task_id"]


def test_a_signal_wakes_a_run_that_was_begun_before_its_time(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, run_at=clock.after(3600))
    act(tx, "reschedule", task_id, run_at=clock.now)
    suspend(tx, claim_one(tx), wait("decision", clock.after(86400), signal="decision"))

    signal(tx, task_id)

    assert claim_one(tx)["task_id"] == task_id
