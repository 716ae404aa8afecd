"""Limits: how much of a queue or a type runs at once, and how fast it starts."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast._words.limits import cause
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
    explain,
    held,
    refused,
    release,
    rows,
    sweep,
    value,
)
from support.health import line as health_line
from support.invariant import assert_invariant
from support.limits import MAIL, fill, set_limit, take
from support.sessions import at_once


@pytest.fixture
def clock(tx: Connection) -> Clock:
    return Clock(tx)


def may_start(conn: Connection) -> int:
    left: int = value(conn, "select may_start from queues.limit_status where rate is not null")
    return left


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
    assert session in explain(admin, waiting)
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


@pytest.mark.parametrize("keys", [False, True])
def test_what_one_claim_takes_at_a_higher_priority_counts_for_the_lower_ones(
    tx: Connection, keys: bool
) -> None:
    set_limit(tx, "queue", "mail", rate=5, per=timedelta(days=1))
    if keys:
        fill(tx, 1, priority=-1, concurrency_key="k")
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


def test_a_clock_that_was_set_back_does_not_fill_the_bucket(tx: Connection, clock: Clock) -> None:
    set_limit(tx, "type", "mail.send", rate=2, per=timedelta(seconds=1))
    fill(tx, 9)
    assert len(take(tx)) == 2
    clock.advance(-100)
    fill(tx, 9)
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
    assert "of queue mail at most 1 may run at once" in explain(tx, last)
    set_limit(tx, "queue", "mail", rate=1, per=timedelta(minutes=1))
    take(tx)
    assert "queue mail has used up its rate" in explain(tx, last)
    (keyed,) = fill(tx, 2, "mail.keyed", concurrency_key="k")[1:]
    answer(tx, "queues.drop_limit", {"subject": "queue", "name": "mail"})
    take(tx)
    assert 'of concurrency key "k" of type mail.keyed at most 1' in explain(tx, keyed)


def test_what_holds_back_a_queue_is_told(tx: Connection, clock: Clock) -> None:
    def told() -> list[tuple[Any, ...]]:
        found = rows(tx, "select code, lanes, facts from queues.held_back('{mail}', queues.clock())")
        return sorted((row["code"], row["facts"]["name"], row["lanes"], cause(row["facts"])) for row in found)

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
        (
            "key_limit_reached",
            "mail.solo",
            1,
            'of concurrency key "c" of type mail.solo at most 1 may run at once, and that many run now',
        ),
        (
            "key_limits_reached",
            "mail.send",
            2,
            '2 concurrency keys of type mail.send, such as "a", run as many tasks at once as they may (1)',
        ),
        (
            "limit_reached",
            "mail.bulk",
            1,
            "of type mail.bulk at most 1 may run at once, and that many run now",
        ),
        (
            "rate_used_up",
            "mail.slow",
            1,
            "type mail.slow has used up its rate, which lets the next task start in 1 min",
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
        return str(health_line(tx, "oldest_due", "mail")["advice"])

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
