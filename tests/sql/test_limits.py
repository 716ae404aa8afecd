"""Limits: how much of a queue, a type or a key runs at once, and how fast it starts."""

from datetime import timedelta
from typing import Any

import psycopg
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
    end,
    enqueue,
    enqueue_many,
    finish,
    held,
    refused,
    release,
    rows,
    sweep,
    value,
)
from support.invariant import assert_invariant
from support.sessions import at_once

MAIL = ["mail"]


@pytest.fixture
def clock(tx: Connection) -> Clock:
    return Clock(tx)


def set_limit(conn: Connection, subject: str, name: str, **limits: Any) -> None:
    call(conn, "queues.set_limit", {"subject": subject, "name": name, **limits})


def take(conn: Connection, count: int = 100, **arguments: Any) -> list[Row]:
    return claim(conn, max_tasks=count, queues=MAIL, **arguments)


def fill(conn: Connection, count: int, type: str = "mail.send", **more: Any) -> list[Any]:  # noqa: A002
    return [row["task_id"] for row in enqueue_many(conn, [{"type": type, **more}] * count)]


def test_no_more_run_at_once_than_the_limit_of_their_queue(tx: Connection) -> None:
    set_limit(tx, "queue", "mail", max_running=5)
    expected = fill(tx, 8)
    first = take(tx)
    assert [task["task_id"] for task in first] == expected[:5]
    assert take(tx) == []
    end(tx, first[0])
    end(tx, first[1], status="failed")
    assert [task["task_id"] for task in take(tx)] == expected[5:7]


def test_the_limit_of_a_queue_is_over_all_its_types_and_priorities(tx: Connection) -> None:
    set_limit(tx, "queue", "mail", max_running=3)
    fill(tx, 2, "mail.send")
    fill(tx, 2, "mail.bounce")
    urgent = fill(tx, 2, "mail.send", priority=5)
    taken = [task["task_id"] for task in take(tx)]
    assert len(taken) == 3
    assert taken[:2] == urgent


def test_the_limit_of_a_type_leaves_the_others_of_its_queue_alone(tx: Connection) -> None:
    set_limit(tx, "type", "mail.send", max_running=1)
    fill(tx, 3, "mail.send")
    fill(tx, 3, "mail.bounce")
    assert sorted(task["type"] for task in take(tx)) == ["mail.bounce"] * 3 + ["mail.send"]


def test_what_is_limited_and_what_is_not_come_in_strict_order(tx: Connection, clock: Clock) -> None:
    set_limit(tx, "type", "mail.send", max_running=10)
    expected = []
    for n in range(6):
        clock.advance(1)
        expected.append(enqueue(tx, "mail.send" if n % 2 else "mail.bounce"))
    assert [task["task_id"] for task in take(tx, 4)] == expected[:4]


def test_both_limits_of_a_task_hold(tx: Connection) -> None:
    set_limit(tx, "queue", "mail", max_running=3)
    set_limit(tx, "type", "mail.send", max_running=2)
    fill(tx, 5, "mail.send")
    fill(tx, 5, "mail.bounce")
    assert sorted(task["type"] for task in take(tx)) == ["mail.bounce", "mail.send", "mail.send"]


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled", "retry", "snooze"])
def test_every_end_of_an_attempt_frees_its_slot(tx: Connection, clock: Clock, status: str) -> None:
    set_limit(tx, "queue", "mail", max_running=1)
    fill(tx, 2)
    end(tx, take(tx)[0], status=status, run_at=clock.after(60).isoformat())
    assert len(take(tx)) == 1


@pytest.mark.parametrize("way", ["release", "cancel", "lease_expired", "delete_task"])
def test_a_slot_is_free_when_its_lease_is_gone(tx: Connection, clock: Clock, way: str) -> None:
    set_limit(tx, "queue", "mail", max_running=1)
    fill(tx, 2)
    (task,) = take(tx)
    assert take(tx) == []
    if way == "release":
        release(tx, held(task))
    elif way == "lease_expired":
        clock.advance(31)
        assert sweep(tx)["recovered"] == 1
    elif way == "cancel":
        act(tx, "cancel", task["task_id"])
    else:
        act(tx, "delete_task", task["task_id"])
        release(tx, held(task))
    assert len(take(tx)) == 1


def test_a_retry_does_not_collide_with_its_own_slot(tx: Connection, clock: Clock) -> None:
    set_limit(tx, "queue", "mail", max_running=1)
    (task_id,) = fill(tx, 1)
    for attempt in (1, 2, 3):
        (task,) = take(tx)
        assert (task["task_id"], task["attempt"]) == (task_id, attempt)
        end(tx, task, status="retry", run_at=clock.after(1).isoformat())
        clock.advance(2)


def test_what_runs_already_when_a_limit_is_set_counts(tx: Connection, clock: Clock) -> None:
    fill(tx, 6)
    assert len(take(tx, 2)) == 2
    set_limit(tx, "queue", "mail", max_running=3)
    clock.advance(11)  # past the time in which claims look for tasks that do not count yet
    assert len(take(tx)) == 1


def test_a_limit_can_be_changed_and_dropped(tx: Connection) -> None:
    set_limit(tx, "queue", "mail", max_running=1)
    fill(tx, 9)
    assert len(take(tx)) == 1
    set_limit(tx, "queue", "mail", max_running=3)
    assert len(take(tx)) == 2
    assert answer(tx, "queues.drop_limit", {"subject": "queue", "name": "mail"}) is True
    assert answer(tx, "queues.drop_limit", {"subject": "queue", "name": "mail"}) is False
    assert len(take(tx)) == 6


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


def test_a_claim_that_is_under_way_when_a_limit_is_set_counts(db: Database) -> None:
    late, admin = db.connect(autocommit=False), db.connect()
    fill(admin, 2, "mail.other")
    fill(admin, 2)
    assert len(take(late, 2)) == 2
    set_limit(admin, "queue", "mail", max_running=3)
    late.commit()
    assert len(take(admin)) == 1


def test_a_claim_that_is_under_way_for_long_when_a_limit_is_set_counts_once_the_leader_looks(
    db: Database,
) -> None:
    late, admin = db.connect(autocommit=False), db.connect()
    clock = Clock(admin)
    fill(admin, 4, lease=3600)
    assert len(take(late, 2)) == 2
    set_limit(admin, "queue", "mail", max_running=3)
    clock.advance(60)
    late.commit()
    answer(admin, "queues.tidy_lanes", {})
    assert len(take(admin)) == 1


@pytest.mark.parametrize("change", ["set", "drop"])
def test_a_limit_that_is_being_claimed_under_is_waited_for_and_the_session_named(
    db: Database, change: str
) -> None:
    slow, admin = db.connect(autocommit=False), db.connect()
    set_limit(admin, "queue", "mail", max_running=3)
    fill(admin, 2)
    take(slow, 1)
    call(admin, "queues.register_worker", {"worker_id": "w1", "queues": MAIL})
    waiting = value(admin, "select task_id from queues.ready")
    session = f"session {slow.info.backend_pid} of login {slow.info.user}"

    function = f"queues.{change}_limit"
    limit = {"subject": "queue", "name": "mail"} | ({"max_running": 1} if change == "set" else {})
    with pytest.raises(psycopg.Error, match=session) as caught:
        answer(admin, function, limit)
    assert caught.value.sqlstate == "QF503"
    assert session in answer(admin, "queues.explain", {"task_id": waiting})
    slow.rollback()
    set_limit(admin, "queue", "mail", max_running=1)


def test_a_rate_is_a_bucket_that_fills_evenly(tx: Connection, clock: Clock) -> None:
    set_limit(tx, "queue", "mail", rate=60, per=timedelta(minutes=1))
    fill(tx, 200)
    assert len(take(tx)) == 60
    assert take(tx) == []
    clock.advance(10)
    assert len(take(tx, 4)) == 4
    assert len(take(tx)) == 6
    clock.advance(3600)
    assert len(take(tx)) == 60


def may_start(conn: Connection) -> int:
    left: int = value(conn, "select may_start from queues.limit_status where rate is not null")
    return left


def test_a_claim_that_looks_again_without_its_cursor_is_charged_once(tx: Connection) -> None:
    set_limit(tx, "queue", "mail", rate=6, per=timedelta(days=1))
    expected = fill(tx, 5)
    assert [task["task_id"] for task in take(tx, 20, after={})] == expected
    assert may_start(tx) == 1


def test_a_rate_is_charged_for_what_is_claimed_and_not_for_what_was_looked_at(tx: Connection) -> None:
    """Ten claims of one task each, where there is always an older one without a limit."""
    set_limit(tx, "queue", "mail", rate=5, per=timedelta(days=1))
    free = enqueue_many(tx, [{"type": "other.work"}] * 10)
    limited = fill(tx, 5)
    queues = ["mail", "other"]
    first = [claim_one(tx, queues=queues)["task_id"] for _ in range(10)]
    assert first == [row["task_id"] for row in free]
    assert may_start(tx) == 5
    assert [task["task_id"] for task in claim(tx, max_tasks=20, queues=queues, after={})] == limited
    assert may_start(tx) == 0


def test_a_few_limited_tasks_among_many_free_ones_all_start(tx: Connection) -> None:
    set_limit(tx, "type", "mail.send", rate=20, per=timedelta(days=1))
    enqueue_many(tx, [{"type": "mail.send" if n % 21 == 20 else "mail.free"} for n in range(420)])
    started: list[str] = []
    cursor: dict[str, Any] = {}
    while taken := take(tx, 37, after=cursor):
        started += [task["type"] for task in taken]
        for task in taken:
            cursor[str(task["lane_id"])] = {"run_at": str(task["run_at"]), "task_id": str(task["task_id"])}
    assert (len(started), started.count("mail.send")) == (420, 20)
    assert may_start(tx) == 0


def test_what_one_claim_takes_at_a_higher_priority_counts_for_the_lower_ones(tx: Connection) -> None:
    set_limit(tx, "queue", "mail", rate=5, per=timedelta(days=1))
    urgent = fill(tx, 3, priority=5)
    fill(tx, 2, "mail.free", priority=1)
    last = fill(tx, 4)
    taken = [task["task_id"] for task in take(tx, 20, after={})]
    assert (taken[:3], len(taken), [task in last for task in taken].count(True)) == (urgent, 5, 0)
    assert may_start(tx) == 0


def test_a_rate_is_not_charged_for_a_task_that_somebody_holds(db: Database) -> None:
    worker, person = db.connect(), db.connect(autocommit=False)
    set_limit(worker, "queue", "mail", rate=2, per=timedelta(days=1))
    held_back, *others = fill(worker, 3)
    act(person, "cancel", held_back)
    assert [task["task_id"] for task in take(worker)] == others, "the next ones are taken instead"
    assert may_start(worker) == 0
    person.rollback()
    assert take(worker) == []


def test_tasks_that_somebody_holds_do_not_keep_others_under_a_limit(db: Database) -> None:
    worker, person = db.connect(), db.connect(autocommit=False)
    set_limit(worker, "queue", "mail", max_running=2)
    *held_back, third, fourth, _ = fill(worker, 5)
    for task_id in held_back:
        act(person, "cancel", task_id)
    assert [task["task_id"] for task in take(worker)] == [third, fourth]


def test_a_task_that_somebody_holds_does_not_keep_the_others_of_its_key(db: Database) -> None:
    worker, person = db.connect(), db.connect(autocommit=False)
    first, second = fill(worker, 2, concurrency_key="customer")
    act(person, "cancel", first)
    assert [task["task_id"] for task in take(worker)] == [second]


def test_a_clock_that_was_set_back_does_not_fill_the_bucket(tx: Connection, clock: Clock) -> None:
    set_limit(tx, "type", "mail.send", rate=2, per=timedelta(seconds=1))
    fill(tx, 9)
    assert len(take(tx)) == 2
    clock.advance(-100)
    fill(tx, 9)
    assert take(tx) == []


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


def set_aside(conn: Connection) -> int:
    """How many tasks wait in the lane of their key, which claims do not read."""
    count: int = value(
        conn,
        "select count(*) from queues.ready join queues.lane using (lane_id) where concurrency_key > ''",
    )
    return count


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


def test_a_task_that_ran_under_a_limit_that_was_dropped_counts_under_the_next_one_only(
    tx: Connection, clock: Clock
) -> None:
    set_limit(tx, "queue", "mail", max_running=1)
    fill(tx, 4)
    (first,) = take(tx)
    answer(tx, "queues.drop_limit", {"subject": "queue", "name": "mail"})
    end(tx, first, status="retry", run_at=clock.now.isoformat())
    assert len(take(tx)) == 4
    set_limit(tx, "type", "mail.send", max_running=5)
    fill(tx, 4)
    assert len(take(tx)) == 1


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


def test_types_beyond_a_few_share_a_lane(tx: Connection) -> None:
    expected = [enqueue(tx, f"mail.t{n}") for n in range(40)]
    assert len(lanes(tx)) == 33
    assert [task["task_id"] for task in claim(tx, max_tasks=9, type_prefixes=["mail.t39"])] == expected[39:]
    assert [task["task_id"] for task in take(tx)] == expected[:39]


@pytest.mark.parametrize("key", [None, "customer"])
def test_a_limit_of_a_type_applies_where_types_share_a_lane(tx: Connection, key: str | None) -> None:
    enqueue_many(tx, [{"type": f"mail.t{n}", "concurrency_key": key} for n in range(35)])
    assert len(take(tx)) == 35
    set_limit(tx, "type", "mail.t34", rate=100, per=timedelta(seconds=1))
    assert value(tx, "select running from queues.limit_status") == 1
    set_limit(tx, "type", "mail.t34", max_running=2, per_key=5)
    fill(tx, 3, "mail.t34", concurrency_key=key)
    taken = take(tx)
    taken += take(tx)
    assert len(taken) == 1
    end(tx, taken[0])
    assert len(take(tx)) == 1


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


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"subject": "worker", "name": "mail", "max_running": 1}, "subject"),
        ({"subject": "queue", "name": "mail"}, "needs max_running"),
        ({"subject": "queue", "name": "mail", "max_running": 0}, "at least 1"),
        ({"subject": "queue", "name": "mail", "per_key": -1}, "at least 1"),
        ({"subject": "queue", "name": "mail", "rate": 5}, "go together"),
        ({"subject": "queue", "name": "mail", "rate": 5, "per": timedelta(days=2)}, "per must be"),
        ({"subject": "queue", "name": "not a name", "max_running": 1}, "queue"),
        ({"subject": "queue", "name": None, "max_running": 1}, "queue"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused(tx: Connection, given: Row, problem: str) -> None:
    with refused(tx, "QF400", problem):
        call(tx, "queues.set_limit", given)


def test_the_view_says_how_far_a_limit_is_used(tx: Connection, clock: Clock) -> None:
    set_limit(
        tx, "queue", "mail", max_running=5, rate=10, per=timedelta(minutes=1), reason="the relay is slow"
    )
    fill(tx, 3)
    take(tx)
    (shown,) = rows(tx, "select * from queues.limit_status")
    assert (shown["subject"], shown["name"], shown["running"], shown["may_start"]) == ("queue", "mail", 3, 7)
    assert shown["reason"] == "the relay is slow"


def test_a_task_that_waits_for_a_slot_says_so(tx: Connection, clock: Clock) -> None:
    call(tx, "queues.register_worker", {"worker_id": "w1", "queues": MAIL})
    set_limit(tx, "queue", "mail", max_running=1, rate=10, per=timedelta(minutes=1))
    last = fill(tx, 3)[-1]
    take(tx)
    assert "of queue mail at most 1 may run at once" in answer(tx, "queues.explain", {"task_id": last})
    set_limit(tx, "queue", "mail", rate=1, per=timedelta(minutes=1))
    take(tx)
    assert "queue mail has used up its rate" in answer(tx, "queues.explain", {"task_id": last})
    (keyed,) = fill(tx, 2, "mail.keyed", concurrency_key="k")[1:]
    answer(tx, "queues.drop_limit", {"subject": "queue", "name": "mail"})
    take(tx)
    assert 'of concurrency key "k" of type mail.keyed at most 1' in answer(
        tx, "queues.explain", {"task_id": keyed}
    )


def test_what_holds_back_a_queue_is_told(tx: Connection, clock: Clock) -> None:
    def told() -> list[tuple[Any, ...]]:
        found = rows(tx, "select kind, name, lanes, words from queues.explain_held('{mail}', queues.clock())")
        return sorted((row["kind"], row["name"], row["lanes"], row["words"]) for row in found)

    assert told() == []
    for key in ("a", "b"):
        fill(tx, 2, concurrency_key=key)
    fill(tx, 2, "mail.solo", concurrency_key="c")
    set_limit(tx, "type", "mail.bulk", max_running=1)
    fill(tx, 2, "mail.bulk")
    set_limit(tx, "type", "mail.slow", rate=1, per=timedelta(minutes=1))
    fill(tx, 2, "mail.slow")
    take(tx)

    assert told() == [
        ("max_running", "mail.bulk", 1, "of type mail.bulk at most 1 may run at once, and that many run now"),
        (
            "per_key",
            "mail.send",
            2,
            '2 concurrency keys of type mail.send, such as "a", run as many tasks at once as they may (1)',
        ),
        (
            "per_key",
            "mail.solo",
            1,
            'of concurrency key "c" of type mail.solo at most 1 may run at once, and that many run now',
        ),
        (
            "rate",
            "mail.slow",
            1,
            "type mail.slow has used up its rate, which lets the next task start in 60 s",
        ),
    ]


def test_health_does_not_ask_for_workers_where_limits_hold_everything_back(
    tx: Connection, clock: Clock
) -> None:
    call(tx, "queues.register_worker", {"worker_id": "w1", "queues": MAIL, "timeout": "1 day"})
    fill(tx, 2, concurrency_key="customer", lease=3600)
    take(tx)
    clock.advance(120)

    def advice() -> str:
        found = "select advice from queues.health() where check_name = 'oldest_due' and subject = 'mail'"
        return str(value(tx, found))

    assert 'of concurrency key "customer" of type mail.send at most 1 may run' in advice()
    enqueue(tx, "mail.send", run_at=clock.now - timedelta(seconds=1))
    assert "hold back the oldest due task" in advice()


def test_health_names_a_session_that_stays_in_a_claim_under_a_limit(db: Database) -> None:
    slow, admin = db.connect(autocommit=False), db.connect()
    fill(admin, 2, concurrency_key="customer")
    take(slow, 1)
    answer(admin, "queues.take_sample", {})  # its times are hidden, and told by samples
    Clock(admin).advance(30)

    (line,) = rows(admin, "select * from queues.health() where check_name = 'held_limit'")

    assert line["subject"] == str(slow.info.backend_pid)
    assert line["level"] in {"amber", "red"}


def test_health_counts_lanes(tx: Connection) -> None:
    use_once(tx, "a", "b", None)
    fill(tx, 1, priority=3)
    (line,) = rows(tx, "select * from queues.health() where check_name = 'lanes'")
    assert (line["value"], line["level"]) == (3, "green")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_claim_that_would_see_an_old_count_is_refused(db: Database, level: str) -> None:
    admin = db.connect()
    set_limit(admin, "queue", "mail", max_running=1)
    fill(admin, 2)
    with db.connect(autocommit=False) as late:
        late.execute(f"set transaction isolation level {level}".encode())
        with pytest.raises(Exception, match="read committed"):
            take(late)


def test_claims_at_once_do_not_overfill_a_limit(db: Database) -> None:
    admin = db.connect()
    set_limit(admin, "queue", "mail", max_running=5)
    fill(admin, 60)

    def work(_: int) -> int:
        with db.connect() as worker:
            most = 0
            for _ in range(30):
                for task in take(worker, 3):
                    most = max(most, value(worker, "select count(*) from queues.lease"))
                    end(worker, task)
            return most

    assert max(at_once(work, range(4))) <= 5
    assert_invariant(admin)


def test_a_claim_that_another_one_keeps_from_counting_comes_back_empty(db: Database) -> None:
    admin = db.connect()
    set_limit(admin, "queue", "mail", max_running=5)
    fill(admin, 3)
    other = fill(admin, 1, "other.work")
    with db.connect(autocommit=False) as slow:
        assert len(take(slow, 1)) == 1
        free = claim(admin, max_tasks=5, queues=["mail", "other"])
        assert [task["task_id"] for task in free] == other
        slow.rollback()
    assert len(take(admin)) == 3


def test_the_simplest_worker_keeps_to_limits_too(tx: Connection) -> None:
    set_limit(tx, "queue", "default", max_running=1)
    for _ in range(2):
        enqueue(tx, "default.work")
    assert claim_one(tx)
    assert rows(tx, "select * from queues.dequeue_next_available_task()") == []


def lanes(conn: Connection, queue: str = "mail") -> list[str | None]:
    """The keys of those lanes that may be enqueued to."""
    found = rows(
        conn,
        "select concurrency_key from queues.lane where queue = %s and leaving is null order by lane_id",
        [queue],
    )
    return [row["concurrency_key"] for row in found]


def use_once(conn: Connection, *keys: str | None) -> None:
    """Each key has had a task, and has none any more."""
    for key in keys:
        enqueue(conn, "mail.keyed", concurrency_key=key)
    for task in take(conn):
        end(conn, task)


def tidy(conn: Connection) -> int:
    """As the leader does: until there is nothing left to do. Return how many lanes are gone."""
    before = value(conn, "select count(*) from queues.lane")
    while answer(conn, "queues.tidy_lanes", {}):
        pass
    after: int = value(conn, "select count(*) from queues.lane")
    return int(before) - after


def test_idle_lanes_of_every_kind_are_removed_and_others_stay(db: Database) -> None:
    conn = db.connect()
    clock = Clock(conn)
    use_once(conn, "idle", None)
    enqueue(conn, "mail.keyed", concurrency_key="running", lease=timedelta(days=1))
    take(conn)
    enqueue(conn, "mail.keyed", concurrency_key="waiting", run_at="2090-01-01T00:00:00+00:00")
    enqueue(conn, "mail.keyed", priority=7, run_at="2090-01-01T00:00:00+00:00")

    fill(conn, 2, "mail.other", concurrency_key="once")
    end(conn, take(conn)[0])
    end(conn, take(conn)[0])

    assert lanes(conn) == ["", None, None, "", "once"]
    assert tidy(conn) == 0, "one that was made just now may be wanted again at once"
    clock.advance(6)
    assert tidy(conn) == 1, "that of a key"
    clock.advance(60)
    assert tidy(conn) == 2
    assert lanes(conn) == ["", None], "one with a running task, one with a task for later"
    assert tidy(conn) == 0


def test_what_has_no_lane_any_more_is_still_listed_and_found(db: Database) -> None:
    conn = db.connect()
    clock = Clock(conn)
    task_id = enqueue(conn, "mail.keyed", idempotency_key="order-7")
    end(conn, take(conn)[0])
    call(conn, "queues.register_worker", {"worker_id": "w1", "queues": ["mail"], "timeout": "1 day"})
    set_limit(conn, "queue", "limited", max_running=1)
    answer(conn, "queues.pause", {"queue": "paused"})
    clock.advance(61)
    assert tidy(conn) == 1

    for function, arguments in (
        ("list_tasks", {"type_prefix": "mail."}),
        ("list_tasks", {"type_prefix": "mail.keyed", "status": "succeeded"}),
        ("list_tasks", {"words": "mail."}),
        ("list_tasks", {"words": "order-7"}),
    ):
        assert [row["task_id"] for row in call(conn, f"queues.{function}", arguments)] == [task_id]
    shown = rows(conn, "select queue, live_workers from queues.queue_status order by queue")
    assert [tuple(row.values()) for row in shown] == [("limited", 0), ("mail", 1), ("paused", 0)]


def test_a_clock_that_was_set_back_does_not_keep_lanes(db: Database) -> None:
    conn = db.connect()
    clock = Clock(conn)
    use_once(conn, "customer", None)
    clock.advance(-3600)

    assert tidy(conn) == 2


def test_a_key_whose_lane_was_removed_gets_another(db: Database) -> None:
    conn = db.connect()
    clock = Clock(conn)
    deleted = enqueue(conn, "mail.keyed", concurrency_key="customer")
    act(conn, "delete_task", deleted)
    clock.advance(61)
    assert tidy(conn) == 1

    act(conn, "restore_task", deleted)
    fill(conn, 1, "mail.keyed", concurrency_key="customer")

    assert lanes(conn) == [""]
    assert [task["task_id"] for task in take(conn)] == [deleted]


@pytest.mark.parametrize("many", [False, True], ids=["one", "a batch"])
@pytest.mark.parametrize("key", ["customer", None])
def test_a_lane_that_somebody_has_found_stays_until_its_task_is_there(
    db: Database, key: str | None, many: bool
) -> None:
    client, worker = db.connect(autocommit=False), db.connect()
    use_once(worker, key)
    Clock(worker).advance(61)
    ask(client, key, many=many)

    assert tidy(worker) == 0
    client.commit()
    assert tidy(worker) == 0
    assert len(take(worker)) == 1
    assert_invariant(worker)


@pytest.mark.parametrize("many", [False, True], ids=["one", "a batch"])
@pytest.mark.parametrize("key", ["customer", None])
def test_a_lane_that_is_about_to_go_is_not_used_any_more(db: Database, key: str | None, many: bool) -> None:
    client, worker = db.connect(), db.connect()
    use_once(worker, key)
    Clock(worker).advance(61)
    assert answer(worker, "queues.tidy_lanes", {}) == 1, "it was found idle"

    ask(client, key, many=many)

    assert tidy(worker) == 1
    assert len(take(worker)) == 1
    assert_invariant(worker)


def test_only_those_who_may_use_a_lane_are_waited_for(db: Database) -> None:
    """A transaction that is open for hours and has nothing to do with lanes keeps none of them."""
    client, other, worker = db.connect(autocommit=False), db.connect(autocommit=False), db.connect()
    use_once(worker, "customer", None)
    Clock(worker).advance(61)
    other.execute("create table elsewhere ()")
    ask(client, None)

    assert tidy(worker) == 0, "who has read one lane may have read any"
    client.commit()
    assert tidy(worker) == 1
    assert_invariant(worker)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("key", ["customer", None])
def test_a_snapshot_from_before_a_lane_went_cannot_put_a_task_there(
    db: Database, level: str, key: str | None
) -> None:
    client, worker = db.connect(autocommit=False), db.connect()
    use_once(worker, key)
    client.execute(f"set transaction isolation level {level}".encode())
    client.execute("select")
    Clock(worker).advance(61)
    assert tidy(worker) == 1

    with pytest.raises(psycopg.errors.SerializationFailure):
        ask(client, key)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_old_snapshot_holds_the_lane_that_it_uses(db: Database, level: str) -> None:
    client, worker = db.connect(autocommit=False), db.connect()
    use_once(worker, "customer")
    client.execute(f"set transaction isolation level {level}".encode())
    client.execute("select")
    Clock(worker).advance(61)
    ask(client, "customer")

    assert tidy(worker) == 0
    client.commit()
    assert tidy(worker) == 0
    assert len(take(worker)) == 1


def ask(conn: Connection, key: str | None, *, many: bool = False) -> None:
    if many:
        fill(conn, 1, "mail.keyed", concurrency_key=key)
    else:
        enqueue(conn, "mail.keyed", concurrency_key=key)


def test_nobody_locks_a_lane_to_enqueue(db: Database) -> None:
    """Rows that many lock at once cost more than the tasks."""
    client, admin = db.connect(autocommit=False), db.connect()
    use_once(admin, "customer", None)
    for key in ("customer", None):
        ask(client, key)
        ask(client, key, many=True)

    assert value(admin, "select bool_and(xmax = '0'::xid) from queues.lane")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_lanes_are_not_tidied_by_an_old_snapshot(db: Database, level: str) -> None:
    with db.connect(autocommit=False) as late:
        late.execute(f"set transaction isolation level {level}".encode())
        with pytest.raises(Exception, match="read committed"):
            answer(late, "queues.tidy_lanes", {})


def test_a_call_takes_a_bounded_number_of_lanes_a_step_further(tx: Connection, clock: Clock) -> None:
    for queue in "abcde":
        enqueue(tx, f"{queue}.work")
        end(tx, claim_one(tx, queues=[queue]))
    clock.advance(61)
    assert answer(tx, "queues.tidy_lanes", {"max_lanes": 3}) == 3
    for wrong in (0, 10_001, None):
        with refused(tx, "QF400", "max_lanes must be between"):
            answer(tx, "queues.tidy_lanes", {"max_lanes": wrong})


def test_a_lane_that_one_transaction_found_idle_is_removed_by_a_later_one(db: Database) -> None:
    client, worker, tidying = db.connect(), db.connect(), db.connect(autocommit=False)
    use_once(worker, "customer")
    Clock(worker).advance(61)
    assert answer(tidying, "queues.tidy_lanes", {}) == 1
    ask(client, "customer")  # who does not see the mark yet uses it
    assert answer(tidying, "queues.tidy_lanes", {}) == 0
    tidying.commit()
    assert tidy(worker) == 0
    assert_invariant(worker)


def test_there_is_no_end_to_the_numbers_of_lanes(tx: Connection) -> None:
    tx.execute("alter table queues.lane alter column lane_id restart with 9000000000000000000")
    enqueue(tx, "mail.keyed", concurrency_key="customer")
    (task,) = take(tx)
    cursor = {str(task["lane_id"]): {"run_at": str(task["run_at"]), "task_id": str(task["task_id"])}}
    assert task["lane_id"] >= 9 * 10**18
    assert take(tx, after=cursor) == []
    assert end(tx, task) == "accepted"


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


@pytest.mark.parametrize("subject", ["queue", "type"])
@pytest.mark.parametrize("limit", [{"max_running": 3}, {"rate": 3, "per": timedelta(minutes=1)}])
def test_a_limit_that_a_claim_did_not_lock_leaves_no_room_for_tasks_that_are_committed_meanwhile(
    tx: Connection, subject: str, limit: dict[str, Any]
) -> None:
    """A claim locks only limits with due tasks; its next statement sees what was committed since."""
    set_limit(tx, subject, {"queue": "mail", "type": "mail.send"}[subject], **limit)
    fill(tx, 1, run_at="2100-01-01T00:00:00+00:00")
    lanes = "(select array_agg(l.lane_id) from queues.lane l where l.queue = 'mail')"
    (found,) = rows(tx, f"select * from queues.rooms_of_lanes({lanes}, queues.clock())")
    assert (found["rooms"], found[f"of_{subject}"]) == ([0], [1])
