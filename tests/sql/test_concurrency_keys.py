"""Concurrency keys: tasks of one key run one at a time, unless a limit says otherwise, and share fairly."""

from datetime import timedelta

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    act,
    answer,
    call,
    claim,
    end,
    enqueue,
    enqueue_many,
    finish,
    held,
    refused,
    release,
    sweep,
    value,
)
from support.invariant import assert_invariant
from support.limits import MAIL, fill, set_limit, take


@pytest.fixture
def clock(tx: Connection) -> Clock:
    return Clock(tx)


def set_aside(conn: Connection) -> int:
    """How many tasks wait in the lane of their key, which claims do not read."""
    count: int = value(
        conn,
        "select count(*) from queues.ready join queues.lane using (lane_id) where concurrency_key > ''",
    )
    return count


@pytest.mark.parametrize("way", ["drop", "change", "one more"])
def test_what_runs_of_a_key_counts_when_the_limit_of_its_queue_changes(tx: Connection, way: str) -> None:
    set_limit(tx, "queue", "mail", per_key=1)
    fill(tx, 3, concurrency_key="customer")
    (running,) = take(tx)
    if way == "drop":
        answer(tx, "queues.drop_limit", {"subject": "queue", "name": "mail"})
    elif way == "change":
        set_limit(tx, "queue", "mail", max_running=10)
    else:
        set_limit(tx, "type", "mail.send", per_key=1)
        answer(tx, "queues.drop_limit", {"subject": "queue", "name": "mail"})
    assert take(tx) == []
    end(tx, running)
    assert len(take(tx)) == 1


def test_a_task_that_somebody_holds_does_not_keep_the_others_of_its_key(db: Database) -> None:
    worker, person = db.connect(), db.connect(autocommit=False)
    first, second = fill(worker, 2, concurrency_key="customer")
    act(person, "cancel", first)
    assert [task["task_id"] for task in take(worker)] == [second]


def test_tasks_of_one_key_run_one_at_a_time_unless_a_limit_says_otherwise(tx: Connection) -> None:
    fill(tx, 3, concurrency_key="customer-7")
    fill(tx, 2, concurrency_key="customer-8")
    fill(tx, 2)
    taken = take(tx)
    assert len(taken) == 4
    assert take(tx) == []
    set_limit(tx, "type", "mail.send", per_key=2)
    assert len(take(tx)) == 2


def test_a_key_counts_per_type_over_all_queues_and_priorities(tx: Connection) -> None:
    for given in ({}, {"queue": "other"}, {"priority": 7}):
        enqueue(tx, "mail.send", concurrency_key="customer-7", **given)
    enqueue(tx, "mail.bounce", concurrency_key="customer-7")
    taken = claim(tx, max_tasks=10, queues=["mail", "other"])
    assert sorted(task["type"] for task in taken) == ["mail.bounce", "mail.send"]


@pytest.mark.parametrize("limited", [False, True])
def test_a_key_belongs_to_a_namespace(db: Database, limited: bool) -> None:
    """Two applications that use the same type and the same key do not keep each other waiting."""
    one, other, worker = db.connect("holdfast_client"), db.connect("holdfast_process"), db.connect()
    if limited:
        set_limit(worker, "queue", "mail", per_key=1)
    for client in (one, other):
        fill(client, 2, concurrency_key="customer-7")
    taken = take(worker)
    assert len(taken) == 2
    assert take(worker) == []
    end(worker, taken[0])
    assert len(take(worker)) == 1
    assert_invariant(worker)


def test_a_type_and_a_key_that_read_alike_are_not_confused(tx: Connection) -> None:
    enqueue(tx, "svc:nextjs", concurrency_key="7")
    enqueue(tx, "svc", concurrency_key="nextjs:7")
    set_limit(tx, "queue", "type", per_key=1)
    enqueue(tx, "type:svc", queue="type", concurrency_key="x")
    enqueue(tx, "svc:x", queue="svc", concurrency_key="x")
    assert len(claim(tx, max_tasks=10, queues=["svc", "type"])) == 4


def test_a_key_is_limited_over_all_types_of_a_queue(tx: Connection) -> None:
    set_limit(tx, "queue", "mail", per_key=2)
    fill(tx, 2, "mail.send", concurrency_key="customer-7")
    fill(tx, 2, "mail.bounce", concurrency_key="customer-7")
    fill(tx, 1, "mail.send", concurrency_key="customer-8")
    assert len(take(tx)) == 3


def test_a_late_small_key_gets_its_share_beside_a_big_one(tx: Connection, clock: Clock) -> None:
    set_limit(tx, "queue", "mail", max_running=4, per_key=4)
    fill(tx, 50, concurrency_key="big")
    running = take(tx, 4)
    clock.advance(10)
    small = fill(tx, 2, concurrency_key="small")
    end(tx, running[0])
    end(tx, running[1])
    assert [task["task_id"] for task in take(tx)] == small


def test_a_big_key_that_has_enough_is_not_walked_over(tx: Connection) -> None:
    fill(tx, 500, concurrency_key="big")
    fill(tx, 1, concurrency_key="small")
    assert len(take(tx, 1)) == 1
    assert len(take(tx, 1)) == 1
    assert take(tx, 1) == []


@pytest.mark.parametrize("way", ["succeeded", "failed", "retry", "release", "cancel", "sweep", "delete_task"])
def test_tasks_of_a_key_come_one_after_the_other_however_each_ends(
    tx: Connection, clock: Clock, way: str
) -> None:
    expected = fill(tx, 3, concurrency_key="customer", max_attempts=1)
    ran = []
    while taken := take(tx):
        (task,) = taken
        ran.append(task["task_id"])
        assert set_aside(tx) == 3 - len(ran)
        if way == "release":
            release(tx, held(task))
            act(tx, "cancel", task["task_id"])
        elif way == "sweep":
            clock.advance(31)
            sweep(tx)
        elif way == "cancel":
            act(tx, "cancel", task["task_id"])
        elif way == "delete_task":
            act(tx, "delete_task", task["task_id"])
            end(tx, task)
        else:
            end(tx, task, status=way)
    assert ran == expected


@pytest.mark.parametrize("way", ["cancel", "delete_task", "reschedule"])
def test_a_task_whose_turn_it_is_does_not_keep_the_others_of_its_key_when_it_goes(
    tx: Connection, clock: Clock, way: str
) -> None:
    _, second, third = fill(tx, 3, concurrency_key="customer")
    end(tx, take(tx)[0])
    act(tx, way, second, **({"run_at": clock.after(3600)} if way == "reschedule" else {}))
    assert [task["task_id"] for task in take(tx)] == [third]


def test_a_task_that_waits_for_its_key_can_be_moved_and_cancelled(tx: Connection, clock: Clock) -> None:
    _, second, third = fill(tx, 3, concurrency_key="customer")
    (running,) = take(tx)
    act(tx, "reschedule", third, run_at=clock.after(-60))
    act(tx, "cancel", second)
    assert take(tx) == []
    end(tx, running)
    assert [task["task_id"] for task in take(tx)] == [third]


def test_a_key_that_waits_in_several_queues_and_types_goes_on_in_each(tx: Connection) -> None:
    """One that was blocked behind a task of another queue is not forgotten."""
    enqueue(tx, "mail.send", concurrency_key="customer")
    enqueue(tx, "mail.send", concurrency_key="customer", queue="other")
    enqueue(tx, "mail.send", concurrency_key="customer", priority=-5)
    order = []
    while taken := claim(tx, max_tasks=9, queues=["mail", "other"]):
        (task,) = taken
        order.append(task["task_id"])
        end(tx, task)
    assert len(order) == 3


def test_a_key_of_which_several_may_run_stays_full(tx: Connection) -> None:
    set_limit(tx, "type", "mail.send", per_key=3)
    fill(tx, 9, concurrency_key="customer")
    for left in (9, 6, 3):
        taken = take(tx)
        assert (len(taken), set_aside(tx)) == (3, left - 3)
        finish(tx, held(*taken, status="succeeded"))
    assert take(tx) == []


def test_an_older_limit_does_not_block_tasks_of_a_key_after_it_was_dropped(tx: Connection) -> None:
    set_limit(tx, "queue", "mail", per_key=1)
    fill(tx, 1, "mail.send", concurrency_key="customer")
    fill(tx, 1, "mail.bounce", concurrency_key="customer")
    assert (len(take(tx)), set_aside(tx)) == (1, 1)
    answer(tx, "queues.drop_limit", {"subject": "queue", "name": "mail"})
    assert len(take(tx)) == 1


def test_a_slow_claim_does_not_keep_other_keys_of_its_type_waiting(db: Database) -> None:
    slow, other = db.connect(autocommit=False), db.connect()
    fill(other, 2, concurrency_key="slow")
    expected = fill(other, 2, concurrency_key="quick")
    assert len(take(slow, 1)) == 1
    taken = take(other)
    assert [task["task_id"] for task in taken] == expected[:1]
    slow.commit()
    finish(other, held(*taken, status="succeeded"))
    assert [task["task_id"] for task in take(other)] == expected[1:]
    assert_invariant(other)


def test_a_task_that_somebody_held_while_its_key_became_free_is_brought_back(db: Database) -> None:
    worker, person = db.connect(), db.connect(autocommit=False)
    _, second = fill(worker, 2, concurrency_key="customer")
    (first,) = take(worker)
    act(person, "cancel", second)
    end(worker, first)
    person.rollback()
    answer(worker, "queues.tidy_lanes", {})
    assert [task["task_id"] for task in take(worker)] == [second]


def test_a_redriven_task_keeps_its_key(tx: Connection) -> None:
    fill(tx, 2, concurrency_key="customer-7")
    (task,) = take(tx)
    end(tx, task, status="failed")
    act(tx, "retry", task["task_id"])
    assert len(take(tx)) == 1
    assert take(tx) == []
    assert_invariant(tx)


def test_the_key_is_shown_and_checked(tx: Connection) -> None:
    (task_id,) = fill(tx, 1, concurrency_key="customer-7")
    assert (
        value(tx, "select concurrency_key from queues.task_status where task_id = %s", [task_id])
        == "customer-7"
    )
    for bad in ("", "x" * 201):
        with refused(tx, "QF400", "concurrency_key"):
            enqueue(tx, "mail.send", concurrency_key=bad)
        with refused(tx, "QF400", "concurrency_key"):
            enqueue_many(tx, [{"type": "mail.send", "concurrency_key": bad}])
    with refused(tx, "QF400", "concurrency_key must be a string"):
        enqueue_many(tx, [{"type": "mail.send", "concurrency_key": 7}])


def test_a_limit_of_keys_leaves_tasks_without_one_alone(tx: Connection) -> None:
    set_limit(tx, "queue", "mail", per_key=1)
    fill(tx, 3)
    fill(tx, 2, concurrency_key="customer")
    (row,) = call(tx, "queues.next_due", {"queues": MAIL})
    assert row["due"] <= timedelta(0)
    assert row["held"] is False
    assert len(take(tx)) == 4


def test_keys_with_waiting_tasks_are_listed(tx: Connection) -> None:
    fill(tx, 5, concurrency_key="customer-7")
    fill(tx, 3, concurrency_key="customer-8")
    fill(tx, 1, concurrency_key="customer-9")
    fill(tx, 2, type="mail.other", concurrency_key="customer-7")
    take(tx)
    found = call(tx, "queues.list_waiting_keys", {})
    assert [(row["waiting"], row["running"]) for row in found] == [(4, 1), (2, 1), (1, 1)]
    assert len({row["running_task_id"] for row in found}) == 3
    assert found[0]["concurrency_key"].endswith("customer-7")
    assert [row["waiting"] for row in call(tx, "queues.list_waiting_keys", {"max_keys": 1})] == [4]
    assert call(tx, "queues.list_waiting_keys", {"of_queue": "other"}) == []
    with refused(tx, "QF400", "max_keys"):
        call(tx, "queues.list_waiting_keys", {"max_keys": 0})
