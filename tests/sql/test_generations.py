"""finish with continue: the run begins again as the next generation of the same task."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from support.clock import Clock
from support.database import Database
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
    explain,
    held,
    refused,
    rows,
    status,
    sweep,
    value,
)
from support.invariant import assert_invariant
from support.schedules import add, at, due, fire, plan, tasks

DAY = 86400


@pytest.fixture(autouse=True)
def _intact(request: pytest.FixtureRequest) -> Iterator[None]:
    tx = request.getfixturevalue("tx") if "tx" in request.fixturenames else None
    yield
    if tx is not None:
        assert_invariant(tx)


def _claimed(tx: Connection, **arguments: Any) -> Row:
    enqueue(tx, **arguments)
    return claim_one(tx)


def _go_on(tx: Connection, task: Row, payload: Any = None, *steps: Row) -> Row:
    """Its next generation, claimed."""
    assert end(tx, task, "continue", payload=payload or {}, steps=list(steps)) == "accepted"
    return claim_one(tx)


def _step(name: str, number: int = 1, **more: Any) -> Row:
    return {"name": name, "number": number, "kind": "step", **more}


def _take(tx: Connection, task_id: UUID, number: int = 1) -> Row:
    """The step of a wait that takes the newest signal."""
    signal_id = value(tx, "select max(signal_id) from queues.signal where task_id = %s", [task_id])
    return {"name": f"wait[{number}]", "number": number, "kind": "signal", "signal_id": signal_id}


def _signal(conn: Connection, task_id: UUID, payload: Any = 1, key: str | None = None) -> str:
    arguments = {"task_id": task_id, "name": "note", "payload": payload, "key": key}
    return str(answer(conn, "queues.signal", arguments))


def _memory(conn: Connection, task: Row) -> list[tuple[str, Any, Any]]:
    facts = call(conn, "queues.read_steps", {"worker_id": "w1", "held": held(task, signals=["note"])})
    return [(row["fact"], row["name"], row["result"]) for row in facts if row["fact"] != "run"]


def _start(tx: Connection, task: Row, step: str, count: int = 1, **more: Any) -> list[UUID]:
    of = {**held(task)[0], "name": step, "number": 1, "awaited": True, **more}
    work = [{"type": "work.pack", "payload": {"n": n}} for n in range(count)]
    started = call(tx, "queues.start_children", {"worker_id": "w1", "held": of, "tasks": work})
    return [row["task_id"] for row in started]


def _suspend(tx: Connection, task: Row, **wait: Any) -> None:
    wait = {"name": "wait[1]", "until": "2040-01-01", **wait}
    assert end(tx, task, "suspend", waits=[wait], run_at="2040-01-01") == "accepted"


def _enqueue_after(tx: Connection, task: Row) -> Any:
    query = """select task_id from queues.enqueue_after('[{"type": "default.after"}]', %s::uuid[])"""
    return value(tx, query, [[task["task_id"]]])


def _prune(tx: Connection) -> int:
    (row,) = call(tx, "queues.prune", {"status": "steps"})
    return int(row["pruned"])


def test_it_is_the_same_task_with_another_payload_and_no_memory(tx: Connection) -> None:
    task = _claimed(tx, payload={"day": 1}, metadata={"of": "shop"}, max_attempts=3)

    again = _go_on(tx, task, {"day": 2}, _step("charge", result=1))

    assert again["token"] > task["token"]
    changed = {"token", "payload", "run_at", "lease_until"}
    assert {name: again[name] for name in again if name not in changed} == {
        name: task[name] for name in task if name not in changed
    }
    assert again["payload"] == {"day": 2}
    assert _memory(tx, again) == []
    found = status(tx, task["task_id"])
    assert (found["status"], found["generation"], found["payload"]) == ("claimed", 2, {"day": 2})
    assert rows(tx, "select number, payload from queues.generation") == [{"number": 1, "payload": {"day": 1}}]


def test_several_generations_are_claimed_at_once(tx: Connection) -> None:
    for n in range(3):
        enqueue(tx, payload={"n": n})
    for task in claim(tx, max_tasks=3):
        end(tx, task, "continue", payload={"n": 10}, steps=[_step("charge", result=1)])

    again = claim(tx, max_tasks=3)

    assert [task["payload"] for task in again] == [{"n": 10}] * 3
    assert [_memory(tx, task) for task in again] == [[], [], []]
    assert value(tx, "select array_agg(generation) from queues.lease") == [2, 2, 2]
    for task in again:
        assert end(tx, task, steps=[_step("charge", result=2)]) == "accepted"


def test_each_generation_remembers_its_own_steps_however_they_are_recorded(tx: Connection) -> None:
    task = _claimed(tx)
    for n in (1, 2, 3):
        alone = {"name": "alone", "number": 1, "took_ms": 0, "result": str(n)}
        arguments = {"worker_id": "w1", "task_id": task["task_id"], "token": task["token"], **alone}
        assert answer(tx, "queues.record_step", arguments) is True
        (said,) = call(
            tx,
            "queues.record_steps",
            {"worker_id": "w1", "runs": held(task, steps=[_step("b", 2, result=n)])},
        )
        assert said["verdict"] == "recorded"
        (said,) = call(
            tx,
            "queues.record_steps",
            {"worker_id": "w1", "runs": held(task, steps=[_step("b", 2, result=9)])},
        )
        assert (said["verdict"], said["stored"][0]["result"]) == ("already", n)
        assert _memory(tx, task) == [("step", "alone", n), ("step", "b", n)]
        task = _go_on(tx, task, None, _step("last", 3, result=n))

    found = rows(tx, "select generation, name, result from queues.step_status order by generation, number")
    assert [(row["generation"], row["name"], row["result"]) for row in found] == [
        (n, name, n) for n in (1, 2, 3) for name in ("alone", "b", "last")
    ]


def test_a_repeated_report_begins_one_generation(tx: Connection) -> None:
    task = _claimed(tx)
    again = _go_on(tx, task)

    assert end(tx, task, "continue", payload={"late": True}) == "already_done"
    assert end(tx, task) == "already_done"
    (late,) = call(tx, "queues.record_steps", {"worker_id": "w1", "runs": held(task, steps=[_step("late")])})
    assert late["verdict"] == "lost"
    assert (status(tx, task["task_id"])["generation"], counts(tx)["step"]) == (2, 0)
    assert end(tx, again) == "accepted"


def test_a_crash_between_generations_leaves_the_next_one(tx: Connection, clock: Clock) -> None:
    task = _go_on(tx, _claimed(tx, max_attempts=2), {"n": 2})
    clock.advance(3600)
    sweep(tx)

    again = claim_one(tx)

    assert (again["task_id"], again["payload"], again["attempt"]) == (task["task_id"], {"n": 2}, 2)


def test_each_generation_has_all_attempts(tx: Connection) -> None:
    task = _claimed(tx, max_attempts=2)
    end(tx, task, "retry", run_at="2000-01-01")
    task = claim_one(tx)
    assert task["attempt"] == 2

    task = _go_on(tx, task)

    assert task["attempt"] == 1
    assert call(tx, "queues.last_error", {"worker_id": "w1", **held(task)[0]}) == []
    end(tx, task, "retry", run_at="2000-01-01")
    end(tx, claim_one(tx), "retry")
    assert status(tx, task["task_id"])["status"] == "dead_letter"


def test_progress_of_the_generation_before_does_not_reset_the_attempts(tx: Connection) -> None:
    task = _go_on(tx, _claimed(tx, max_attempts=2), None, _step("charge"))
    end(tx, task, "retry", run_at="2000-01-01")

    assert claim_one(tx)["attempt"] == 2


def test_a_failed_try_belongs_to_its_generation(tx: Connection) -> None:
    failed = {"name": "charge", "try": 1, "tries": 3, "error": {"kind": "refused", "message": "no"}}
    task = _claimed(tx)
    call(tx, "queues.record_steps", {"worker_id": "w1", "runs": held(task, tries=[failed])})
    task = _go_on(tx, task)

    assert _memory(tx, task) == []
    call(tx, "queues.record_steps", {"worker_id": "w1", "runs": held(task, tries=[failed])})
    assert [(fact, name) for fact, name, _ in _memory(tx, task)] == [("try", "charge")]
    found = rows(tx, "select generation, step_try from queues.error order by generation")
    assert [(row["generation"], row["step_try"]) for row in found] == [(1, 1), (2, 1)]


def test_a_retried_run_goes_on_in_its_generation(tx: Connection) -> None:
    task = _go_on(tx, _claimed(tx), {"n": 2})
    call(
        tx, "queues.record_steps", {"worker_id": "w1", "runs": held(task, steps=[_step("charge", result=5)])}
    )
    end(tx, task, "failed")
    act(tx, "retry", task["task_id"])

    again = claim_one(tx)

    assert again["payload"] == {"n": 2}
    assert _memory(tx, again) == [("step", "charge", 5)]


def test_a_request_that_is_repeated_returns_the_task_in_every_generation(tx: Connection) -> None:
    task = _claimed(tx, idempotency_key="order-7", payload={"day": 1})
    for day in (2, 3):
        task = _go_on(tx, task, {"day": day})

        assert enqueue(tx, idempotency_key="order-7", payload={"day": 1}) == task["task_id"]
        with refused(tx, "QF409", "another payload"):
            enqueue(tx, idempotency_key="order-7", payload={"day": day})


def test_a_unique_run_that_goes_on_has_no_twin(tx: Connection) -> None:
    query = """select * from queues.enqueue_unique('default.work', key => 'k', "unique" => 'unfinished')"""
    (first,) = rows(tx, query)
    task = _go_on(tx, claim_one(tx))

    assert rows(tx, query) == [{"task_id": first["task_id"], "created": False}]
    end(tx, task)
    assert rows(tx, query)[0]["created"]


def test_a_debounced_run_that_goes_on_is_not_replaced(tx: Connection, clock: Clock) -> None:
    query = "select * from queues.enqueue_unique('default.work', key => 'k', debounce => '5 s')"
    (first,) = rows(tx, query)
    clock.advance(5)
    end(tx, claim_one(tx), "continue", payload={"n": 2})

    (second,) = rows(tx, query)

    assert second["created"]
    task = claim_one(tx)
    assert (task["task_id"], task["payload"]) == (first["task_id"], {"n": 2})
    end(tx, task, "snooze")
    assert status(tx, first["task_id"])["status"] == "pending"


def test_a_schedule_that_does_not_overlap_waits_for_the_last_generation(tx: Connection, clock: Clock) -> None:
    add(tx, type="default.report", overlap="skip")
    assert plan(tx, at(12))
    fire(tx, at(12))
    task = _go_on(tx, claim_one(tx))
    clock.advance(3600)
    assert due(tx)

    assert fire(tx, at(13)) == [(at(13), "overlapped")]
    assert len(tasks(tx)) == 1
    end(tx, task)
    clock.advance(3600)
    assert fire(tx, at(14)) == [(at(14), "fired")]


@pytest.mark.parametrize("when", ["ready", "claimed", "suspended"])
def test_a_cancel_ends_its_life(tx: Connection, when: str) -> None:
    task = _claimed(tx)
    end(tx, task, "continue", payload={})
    held_again = claim(tx) if when != "ready" else []
    if when == "suspended":
        _suspend(tx, held_again[0])

    assert act(tx, "cancel", task["task_id"]) == "cancelled"

    assert claim(tx) == []
    assert status(tx, task["task_id"])["status"] == "cancelled"
    if when == "claimed":
        assert end(tx, held_again[0]) == "cancelled"


def test_a_signal_goes_to_whichever_generation_takes_it(tx: Connection) -> None:
    task = _claimed(tx)
    assert _signal(tx, task["task_id"], "one") == _signal(tx, task["task_id"], "two") == "kept"
    one = value(tx, "select min(signal_id) from queues.signal")

    task = _go_on(tx, task, None, {"name": "wait[1]", "number": 1, "kind": "signal", "signal_id": one})

    assert _memory(tx, task) == [("signal", "note", "two")]


def test_a_signal_that_is_sent_again_is_not_taken_twice(tx: Connection) -> None:
    task = _claimed(tx)
    _signal(tx, task["task_id"], "paid", "k")
    task = _go_on(tx, task, None, _take(tx, task["task_id"]))

    assert _signal(tx, task["task_id"], "paid", "k") == "replayed"
    assert _signal(tx, task["task_id"], "lost", "k") == "conflict"
    assert _memory(tx, task) == []


def test_a_signal_of_a_transaction_that_was_open_meanwhile_reaches_the_next_generation(db: Database) -> None:
    """The sender was told that it is kept."""
    conn = db.connect()
    task = _claimed(conn)
    slow = db.connect(autocommit=False)
    assert _signal(slow, task["task_id"], "word") == "kept"
    task = _go_on(conn, task)
    _suspend(conn, task, signal="note")
    conn.execute("select queues.wake_waiting(%s)", [[task["task_id"]]])
    assert claim(conn) == []

    slow.commit()
    sweep(conn)

    task = claim_one(conn)
    assert ("signal", "note", "word") in _memory(conn, task)
    assert_invariant(conn)


def test_what_a_generation_waited_for_does_not_outlive_it(tx: Connection) -> None:
    task = _claimed(tx)
    _suspend(tx, task, signal="note")
    _signal(tx, task["task_id"])
    end(tx, claim_one(tx), "continue", payload={})

    assert rows(tx, "select from queues.wait") == []
    assert status(tx, task["task_id"])["status"] == "pending"


def test_tasks_of_its_key_come_in_between_generations(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx, concurrency_key="customer")
    clock.advance(1)
    other = enqueue(tx, concurrency_key="customer")
    assert claim(tx) == []
    clock.advance(1)

    end(tx, task, "continue", payload={})

    (turn,) = claim(tx, max_tasks=5)
    assert turn["task_id"] == other
    end(tx, turn)
    (turn,) = claim(tx, max_tasks=5)
    assert turn["task_id"] == task["task_id"]


def test_a_run_that_was_deleted_meanwhile_stops_between_generations_until_it_is_restored(
    tx: Connection,
) -> None:
    task = _claimed(tx)
    act(tx, "delete_task", task["task_id"])

    assert end(tx, task, "continue", payload={"n": 2}) == "accepted"

    assert claim(tx) == []
    act(tx, "restore_task", task["task_id"])
    again = claim_one(tx)
    assert (again["task_id"], again["payload"]) == (task["task_id"], {"n": 2})


def test_tasks_after_it_wait_for_its_end(tx: Connection) -> None:
    task = _claimed(tx)
    after = _enqueue_after(tx, task)
    task = _go_on(tx, task)
    assert claim(tx) == []
    end(tx, task, result="last")
    tx.execute("select queues.wake_joined(%s)", [[task["task_id"]]])

    assert claim_one(tx)["task_id"] == after


def test_a_task_that_goes_on_still_knows_what_it_came_after(tx: Connection) -> None:
    first = _claimed(tx)
    after = _enqueue_after(tx, first)
    end(tx, first, result="done")
    tx.execute("select queues.wake_joined(%s)", [[first["task_id"]]])
    task = claim_one(tx)
    assert task["task_id"] == after

    task = _go_on(tx, task)

    assert _memory(tx, task) == [("children", "", ["done"])]


def test_children_are_those_of_the_generation_that_started_them(tx: Connection) -> None:
    task = _claimed(tx)
    old = _start(tx, task, "pack", 2)
    task = _go_on(tx, task, None, {**_step("pack"), "kind": "children", "result": []})

    new = _start(tx, task, "pack")

    assert not set(old) & set(new)
    (found,) = call(tx, "queues.children_of", {"task_id": task["task_id"]})
    assert (found["step"], found["count"]) == ("pack", 1)
    _suspend(tx, task, name="pack", policy="all")
    assert "0 of 1" in explain(tx, task["task_id"])
    assert value(tx, "select on_task from queues.wait") == new[0]
    (child,) = (one for one in claim(tx, queues=["work"], max_tasks=5) if one["task_id"] == new[0])
    end(tx, child, result="packed")
    tx.execute("select queues.wake_joined(%s)", [new])
    assert _memory(tx, claim_one(tx))[0] == ("children", "pack", ["packed"])


def test_the_limit_of_children_counts_those_of_a_generation(tx: Connection) -> None:
    tx.execute("update queues.setting set value = 2 where name = 'max_children'")
    task = _claimed(tx)
    _start(tx, task, "pack", 2)
    task = _go_on(tx, task)

    _start(tx, task, "pack", 2)
    with refused(tx, "QF413", "2 allowed"):
        _start(tx, task, "other")


def test_a_cancelled_run_ends_the_children_of_its_generation_only(tx: Connection) -> None:
    task = _claimed(tx)
    (old,) = _start(tx, task, "pack")
    task = _go_on(tx, task)
    (new,) = _start(tx, task, "pack")

    act(tx, "cancel", task["task_id"])
    sweep(tx)

    assert (status(tx, old)["status"], status(tx, new)["status"]) == ("pending", "cancelled")
    act(tx, "retry", task["task_id"])
    assert status(tx, new)["status"] == "pending"


def test_a_fork_is_one_of_the_current_generation(tx: Connection) -> None:
    task = _claimed(tx, payload={"n": 1})
    task = _go_on(tx, task, {"n": 2}, _step("charge", result=1), _step("pack", 2))
    end(tx, task, steps=[_step("charge", result=2), _step("pack", 2)])

    fork = answer(tx, "queues.fork", {"task_id": task["task_id"], "before_step": "pack"})

    again = claim_one(tx)
    assert (again["task_id"], again["payload"], status(tx, fork)["generation"]) == (fork, {"n": 2}, 1)
    assert _memory(tx, again) == [("step", "charge", 2)]


def test_a_replay_begins_at_the_beginning(tx: Connection) -> None:
    task = _go_on(tx, _claimed(tx, payload={"n": 1}), {"n": 2})
    end(tx, task)

    answer(tx, "queues.replay", {"task_id": task["task_id"]})

    assert claim_one(tx)["payload"] == {"n": 1}


def test_the_timeline_names_the_generations_and_shows_the_current_one(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    for n in (1, 2):
        clock.advance(1)
        assert end(tx, task, "continue", payload={}, steps=[_step(f"charge {n}")]) == "accepted"
        clock.advance(1)
        task = claim_one(tx)
    clock.advance(1)
    call(tx, "queues.record_steps", {"worker_id": "w1", "runs": held(task, steps=[_step("charge 3")])})

    found = call(tx, "queues.run_timeline", {"task_id": task["task_id"]})

    assert [(row["happened"], row["name"]) for row in found if row["name"]] == [
        ("continued", "generation 2"),
        ("continued", "generation 3"),
        ("step", "charge 3"),
    ]
    events = [row["event_type"] for row in rows(tx, "select event_type from queues.task_event")]
    assert events == ["created", *["claimed", "started", "continued"] * 2, "claimed"]


def test_retention_keeps_its_handle_working(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx, payload={"n": 1}, idempotency_key="order-7")
    task_id = task["task_id"]
    for _ in range(12):
        clock.advance(DAY)
        task = _go_on(tx, task, {"n": 2}, _step("charge"))
        for kind in ("succeeded", "cancelled", "failed", "steps"):
            call(tx, "queues.prune", {"status": kind})

    assert enqueue(tx, payload={"n": 1}, idempotency_key="order-7") == task_id
    assert _signal(tx, task_id) == "kept"
    end(tx, task, result="done")
    assert (status(tx, task_id)["status"], status(tx, task_id)["result"]) == ("succeeded", "done")


@pytest.mark.parametrize("per_day", [5, pytest.param(100, marks=pytest.mark.full)])
def test_a_run_without_an_end_does_not_grow_without_one(tx: Connection, clock: Clock, per_day: int) -> None:
    """In ten days fifty or a thousand generations, with steps, signals, failures and children."""
    task = _claimed(tx, payload={"n": 1}, max_attempts=3)
    task_id = task["task_id"]
    failed = {"name": "charge", "try": 1, "tries": 3, "error": {"kind": "refused", "message": "no"}}
    sizes = []
    for day in range(10):
        for n in range(per_day):
            _signal(tx, task_id, n, f"{day} {n}")
            end(tx, task, "retry", run_at="2000-01-01")
            task = claim_one(tx)
            if n == 0:
                _start(tx, task, "pack", awaited=False)
            steps = [_step("charge"), _take(tx, task_id, 2)]
            assert end(tx, task, "continue", payload={}, steps=steps, tries=[failed]) == "accepted"
            task = claim_one(tx)
        clock.advance(DAY)
        assert _prune(tx) == (per_day if day > 6 else 0)
        sizes.append(
            {name: counts(tx)[name] for name in ("generation", "step", "signal", "child", "error", "act")}
        )

    assert status(tx, task_id)["generation"] == 10 * per_day + 1
    # Seven days, and the row of the first generation.
    assert sizes[-1] == sizes[-2]
    assert sizes[-1]["generation"] == 7 * per_day + 1
    assert value(tx, "select payload from queues.generation where number = 1") == {"n": 1}
    assert rows(tx, "select from queues.generation where pruned") == [{}]
    assert _prune(tx) == 0


def test_a_long_generation_still_knows_when_it_began(tx: Connection, clock: Clock) -> None:
    """Changes that were deployed before count for it: it remembers no way that it would have to keep."""
    task = _claimed(tx)
    for _ in range(4):
        clock.advance(10 * DAY)
        task = _go_on(tx, task)
        begun = clock.now
        clock.advance(10 * DAY)
        _prune(tx)
        facts = call(tx, "queues.read_steps", {"worker_id": "w1", "held": held(task)})
        assert [row["until"] for row in facts if row["fact"] == "run"] == [begun]
        end(tx, task, "snooze", run_at="2000-01-01")
        task = claim_one(tx)

    assert rows(tx, "select number from queues.generation order by number") == [{"number": 1}, {"number": 4}]


def test_retention_goes_on_until_nothing_is_left(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    for _ in range(5):
        task = _go_on(tx, task)
    clock.advance(8 * DAY)

    (counted,) = call(tx, "queues.prune", {"status": "steps", "dry_run": True})
    assert (counted["pruned"], counted["next"]) == (5, None)
    pruned = [call(tx, "queues.prune", {"status": "steps", "max_tasks": 2})[0] for _ in range(3)]
    assert [row["pruned"] for row in pruned] == [2, 2, 1]
    assert [row["next"] is None for row in pruned] == [False, False, True]


def test_a_policy_of_its_type_keeps_generations_longer(tx: Connection, clock: Clock) -> None:
    arguments = {"status": "steps", "keep": "30 days", "type_prefix": "default."}
    call(tx, "queues.set_retention", arguments)
    _go_on(tx, _claimed(tx))
    clock.advance(8 * DAY)
    assert _prune(tx) == 0
    clock.advance(30 * DAY)
    assert _prune(tx) == 1


def test_retention_removes_the_children_of_former_generations(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    (old,) = _start(tx, task, "pack")
    task = _go_on(tx, task)
    (new,) = _start(tx, task, "pack")
    for child in claim(tx, queues=["work"], max_tasks=2):
        end(tx, child)
    clock.advance(8 * DAY)

    call(tx, "queues.prune", {"status": "succeeded"})

    left = [row["task_id"] for row in rows(tx, "select task_id from queues.task where type = 'work.pack'")]
    assert (left, old in left) == ([new], False)


def test_nothing_is_left_of_a_task_that_retention_removes(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    for _ in range(3):
        task = _go_on(tx, task, None, _step("charge"))
    end(tx, task, steps=[_step("charge")])
    clock.advance(100 * DAY)
    for _ in range(2):
        for kind in ("steps", "succeeded"):
            call(tx, "queues.prune", {"status": kind})

    left = {name for name, count in counts(tx).items() if count}
    assert left <= {"lane", "worker"}


def test_only_the_engine_changes_the_payload_of_a_task(tx: Connection) -> None:
    task = _go_on(tx, _claimed(tx))

    for change in ("payload = '{}'", "generation = 7", "queue = 'other'"):
        with refused(tx, "QF412", "append-only"):
            tx.execute(f"update queues.task set {change} where task_id = %s".encode(), [task["task_id"]])
    with refused(tx, "QF412", "append-only"):
        tx.execute("delete from queues.generation")
