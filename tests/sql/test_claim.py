"""queues.claim: the first due tasks, in strict order, each to one worker."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    Row,
    act,
    answer,
    claim,
    claim_one,
    end,
    enqueue,
    enqueue_many,
    held,
    refused,
    release,
    status,
    value,
)
from support.invariant import assert_invariant
from support.limits import set_limit
from support.sessions import at_once

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TYPES = ["billing.charge", "billing.refund", "billing_old.x", "billing", "media.cut", "b%.x", "b_.x", "bx.x"]
PREFIXES = ["billing.", "billing", "b%", "b_", "b", "media.", "nothing.", ""]

TASK = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES), "priority": st.integers(-2, 2), "due_in": st.integers(-5, 3)},
    optional={"queue": st.sampled_from(["billing", "media", "other"])},
)


def _expected(tasks: list[Row], queues: list[str] | None, prefixes: list[str] | None) -> list[Any]:
    queues = ["default"] if queues is None and prefixes is None else queues or []
    found = [
        task
        for task in tasks
        if task["due_in"] <= 0
        and (task["queue"] in queues or any(task["type"].startswith(prefix) for prefix in prefixes or []))
    ]
    return [
        task["task_id"] for task in sorted(found, key=lambda t: (-t["priority"], t["due_in"], t["task_id"]))
    ]


@QUICK
@given(
    tasks=st.lists(TASK, max_size=25),
    queues=st.none() | st.lists(st.sampled_from(["billing", "media", "other", "default"]), max_size=3),
    prefixes=st.none() | st.lists(st.sampled_from(PREFIXES), max_size=3),
    max_tasks=st.integers(1, 12),
    paused=st.sets(st.sampled_from(["billing", "media"])),
)
def test_tasks_come_by_priority_then_time_then_id_over_all_that_the_worker_subscribes_to(
    tx: Connection,
    *,
    tasks: list[Row],
    queues: list[str] | None,
    prefixes: list[str] | None,
    max_tasks: int,
    paused: set[str],
) -> None:
    with tx.transaction(force_rollback=True):
        clock = Clock(tx)
        for task in tasks:
            task.setdefault("queue", task["type"].split(".")[0])
            task["task_id"] = enqueue(
                tx,
                task["type"],
                queue=task["queue"],
                priority=task["priority"],
                run_at=clock.after(task["due_in"]),
            )
        for queue in paused:
            answer(tx, "queues.pause", {"queue": queue})
        expected = _expected([task for task in tasks if task["queue"] not in paused], queues, prefixes)

        got = list(_claim_all(tx, queues=queues, type_prefixes=prefixes, max_tasks=max_tasks))

        assert got == [expected[n : n + max_tasks] for n in range(0, len(expected), max_tasks)]


def _claim_all(conn: Connection, **arguments: Any) -> Iterator[list[Any]]:
    while page := claim(conn, **arguments):
        yield [task["task_id"] for task in page]


@pytest.mark.parametrize("limited", [False, True])
def test_the_highest_priority_comes_first_whatever_was_enqueued_before_it(
    tx: Connection, limited: bool
) -> None:
    if limited:
        set_limit(tx, "queue", "elsewhere", max_running=1)
    low, high, middle = (enqueue(tx, priority=priority) for priority in (-1, 2, 0))

    assert [claim_one(tx)["task_id"] for _ in range(3)] == [high, middle, low]


@pytest.mark.parametrize("types", [1, 3])
def test_of_one_priority_the_earliest_comes_first_then_the_first_enqueued(
    tx: Connection, clock: Clock, types: int
) -> None:
    due = [enqueue(tx, f"default.t{n % types}", run_at=clock.after(-(n // 2))) for n in range(12)]

    got = [claim_one(tx)["task_id"] for _ in due]

    assert got == [due[n] for n in sorted(range(12), key=lambda n: (-(n // 2), n))]


def test_a_worker_is_given_all_that_it_needs_to_run_a_task(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(
        tx,
        "default.work",
        payload={"n": 1},
        executor="process",
        timeout=timedelta(seconds=5),
        max_attempts=7,
        metadata={"trace": "t"},
        run_at=clock.after(-9),
    )

    task = claim_one(tx)

    assert {**task, "token": 0, "lane_id": 0} == {
        "task_id": task_id,
        "token": 0,
        "type": "default.work",
        "executor": "process",
        "payload": {"n": 1},
        "attempt": 1,
        "max_attempts": 7,
        "lease_until": clock.after(30),
        "timeout": timedelta(seconds=5),
        "metadata": {"trace": "t"},
        "run_at": clock.after(-9),
        "queue": "default",
        "ends_at": None,
        "lane_id": 0,
    }


def test_with_no_subscription_it_takes_from_default(tx: Connection) -> None:
    enqueue(tx, "other.work", priority=9)
    task_id = enqueue(tx, "other.work", queue="default")

    assert [task["task_id"] for task in claim(tx, max_tasks=9)] == [task_id]


@pytest.mark.parametrize("arguments", [{"queues": []}, {"type_prefixes": []}])
def test_an_empty_subscription_takes_nothing(tx: Connection, arguments: Row) -> None:
    enqueue(tx)

    assert claim(tx, **arguments) == []


def test_a_prefix_finds_exactly_the_types_that_start_with_it(tx: Connection) -> None:
    for task_type in ("billing_old.x", "billing", "Billing.x", "xbilling.x", "billing:x"):
        enqueue(tx, task_type)
    task_id = enqueue(tx, "billing.x")

    assert [task["task_id"] for task in claim(tx, type_prefixes=["billing."], max_tasks=9)] == [task_id]


@pytest.mark.parametrize("prefix", ["%", "_", "b%", "bill%g.", "billin_.", "\\b", ".*"])
def test_percent_and_underscore_are_ordinary_characters(tx: Connection, prefix: str) -> None:
    enqueue(tx, "billing.x")

    assert claim(tx, type_prefixes=[prefix]) == []


def test_a_prefix_finds_a_type_whatever_queue_it_was_put_into(tx: Connection) -> None:
    task_id = enqueue(tx, "billing.x", queue="elsewhere")

    assert claim_one(tx, type_prefixes=["billing."])["task_id"] == task_id


def test_a_task_that_matches_queue_and_prefix_is_claimed_once(tx: Connection) -> None:
    enqueue(tx, "billing.x")

    assert len(claim(tx, queues=["billing", "billing"], type_prefixes=["b", "billing."], max_tasks=9)) == 1


def test_a_paused_queue_gives_nothing_until_it_is_resumed(tx: Connection) -> None:
    enqueue(tx)
    answer(tx, "queues.pause", {"queue": "default"})
    assert claim(tx) == []

    answer(tx, "queues.resume", {"queue": "default"})
    assert len(claim(tx)) == 1


def test_a_task_for_later_is_not_claimed_and_does_not_block_a_lower_priority(
    tx: Connection, clock: Clock
) -> None:
    later = enqueue(tx, priority=9, run_at=clock.after(1))
    now = enqueue(tx, priority=-9)

    assert [task["task_id"] for task in claim(tx, max_tasks=9)] == [now]
    clock.advance(1)
    assert [task["task_id"] for task in claim(tx, max_tasks=9)] == [later]


def test_a_task_is_due_at_its_very_time(tx: Connection, clock: Clock) -> None:
    enqueue(tx, run_at=clock.now)

    assert len(claim(tx)) == 1


def test_no_more_than_max_tasks_are_claimed(tx: Connection) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 7)

    assert [len(claim(tx, max_tasks=3)) for _ in range(4)] == [3, 3, 1, 0]


def test_by_default_one_task_is_claimed(tx: Connection) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 3)

    assert len(claim(tx)) == 1


def test_every_claim_counts_an_attempt(tx: Connection, clock: Clock) -> None:
    enqueue(tx, max_attempts=3)
    attempts = []
    for _ in range(3):
        task = claim_one(tx)
        attempts.append(task["attempt"])
        end(tx, task, "retry", run_at=clock.now)

    assert attempts == [1, 2, 3]


def test_a_claim_has_one_token_and_tokens_grow(tx: Connection) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 9)

    tokens = [{task["token"] for task in claim(tx, max_tasks=3)} for _ in range(3)]

    assert [len(each) for each in tokens] == [1, 1, 1]
    assert [min(each) for each in tokens] == sorted({min(each) for each in tokens})


@pytest.mark.parametrize(
    ("of_task", "of_claim", "seconds"),
    [(None, None, 30), (None, 90, 90), (45, None, 45), (45, 90, 45)],
)
def test_a_lease_lasts_as_the_task_says_else_the_claim_else_thirty_seconds(
    tx: Connection, clock: Clock, of_task: int | None, of_claim: int | None, seconds: int
) -> None:
    as_interval = [None if length is None else timedelta(seconds=length) for length in (of_task, of_claim)]
    task_id = enqueue(tx, lease=as_interval[0])

    task = claim_one(tx, lease=as_interval[1])

    assert task["lease_until"] == clock.after(seconds)
    assert status(tx, task_id)["lease_until"] == clock.after(seconds)


def test_a_claimed_task_says_who_has_it(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    claim(tx, "worker-7")

    task = status(tx, task_id)
    assert (task["status"], task["worker_id"], task["attempt"]) == ("claimed", "worker-7", 1)
    assert (task["claimed_at"], task["started_at"]) == (clock.now, None)


def test_a_deleted_task_is_not_claimed(tx: Connection) -> None:
    act(tx, "delete_task", enqueue(tx))

    assert claim(tx) == []


def _cursor(*tasks: Row) -> Row:
    return {
        str(task["lane_id"]): {"run_at": task["run_at"].isoformat(), "task_id": str(task["task_id"])}
        for task in tasks
    }


def test_a_claim_starts_after_its_cursor(tx: Connection, clock: Clock) -> None:
    ids = [row["task_id"] for row in enqueue_many(tx, [{"type": "default.work"}] * 4)]
    (first, second) = claim(tx, max_tasks=2)
    release(tx, held(first, second))

    assert [task["task_id"] for task in claim(tx, max_tasks=2, after=_cursor(second))] == ids[2:]


def test_a_cursor_holds_for_its_own_lane_only(tx: Connection, clock: Clock) -> None:
    enqueue(tx, "default.a", run_at=clock.after(-1))
    other = enqueue(tx, "default.b", run_at=clock.after(-2))
    task = claim_one(tx, type_prefixes=["default.a"])
    release(tx, held(task))

    assert claim_one(tx, after=_cursor(task))["task_id"] == other


def test_a_claim_that_comes_back_short_looks_again_without_its_cursor(tx: Connection, clock: Clock) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 4)
    (*_, last) = tasks = claim(tx, max_tasks=3)
    release(tx, held(*tasks))

    assert len(claim(tx, max_tasks=4, after=_cursor(last))) == 4


def test_a_task_put_in_behind_the_cursor_is_found_when_nothing_is_left_past_it(
    tx: Connection, clock: Clock
) -> None:
    enqueue(tx)
    task = claim_one(tx)
    earlier = enqueue(tx, run_at=clock.after(-60))

    assert claim_one(tx, after=_cursor(task))["task_id"] == earlier


def test_a_cursor_does_not_let_a_paused_queue_through(tx: Connection) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 2)
    task = claim_one(tx)
    answer(tx, "queues.pause", {"queue": "default"})

    assert claim(tx, after=_cursor(task)) == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"worker_id": None}, "worker_id"),
        ({"worker_id": ""}, "worker_id"),
        ({"worker_id": "w" * 201}, "worker_id"),
        ({"max_tasks": None}, "max_tasks"),
        ({"max_tasks": 0}, "max_tasks"),
        ({"max_tasks": -1}, "max_tasks"),
        ({"max_tasks": 10_001}, "max_tasks"),
        ({"queues": ["a", None]}, "queues"),
        ({"type_prefixes": [None]}, "type_prefixes"),
        ({"lease": "0"}, "lease"),
        ({"lease": "-1 second"}, "lease"),
        ({"lease": "25 hours"}, "lease"),
        ({"after": []}, "after"),
        ({"after": "text"}, "after"),
        ({"after": 7}, "after"),
    ],
)
def test_a_claim_that_cannot_be_meant_is_refused(tx: Connection, arguments: Row, named: str) -> None:
    enqueue(tx)

    with refused(tx, "QF400", named):
        claim(tx, **{"worker_id": "w1", **arguments})


@pytest.mark.parametrize("level", ["off", "on", "remote_apply"])
def test_a_claim_leaves_the_durability_of_its_transaction_alone(db: Database, level: str) -> None:
    enqueue_many(db.connect(), [{"type": "default.work"}] * 3)
    worker = db.connect("holdfast_worker", autocommit=False)
    worker.execute(f"set local synchronous_commit = {level}".encode())

    assert len(claim(worker, max_tasks=1) + claim(worker, max_tasks=2)) == 3

    assert value(worker, "show synchronous_commit") == level


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("promise", ["one attempt", "key", "running", "rate"])
def test_a_claim_waits_for_the_disk_where_a_second_run_would_break_a_promise(
    db: Database, promise: str, number: int
) -> None:
    admin = db.connect()
    promised: dict[str, Row] = {"one attempt": {"max_attempts": 1}, "key": {"concurrency_key": "k"}}
    if promise == "running":
        set_limit(admin, "queue", "default", max_running=10)
    elif promise == "rate":
        set_limit(admin, "queue", "default", rate=10, per="1 hour")
    enqueue_many(
        admin,
        [{"type": "default.work"}] * (number - 1) + [{"type": "default.work", **promised.get(promise, {})}],
    )
    worker = db.connect("holdfast_worker", autocommit=False)
    worker.execute("set local synchronous_commit = off")

    assert len(claim(worker, max_tasks=number)) == number

    assert value(worker, "show synchronous_commit") == "on"


def test_a_claim_is_there_for_others_once_it_is_committed(db: Database) -> None:
    enqueue(db.connect())
    worker, other = db.connect("holdfast_worker"), db.connect("holdfast_worker")
    worker.execute("set synchronous_commit = on")

    assert len(claim(worker)) == 1
    assert claim(other) == []
    assert value(worker, "show synchronous_commit") == "on"


def test_a_claim_that_is_rolled_back_claimed_nothing(db: Database) -> None:
    task_id = enqueue(db.connect())
    worker = db.connect("holdfast_worker", autocommit=False)
    claim(worker)
    worker.rollback()

    assert claim_one(worker)["task_id"] == task_id


def test_a_claim_takes_what_another_one_has_not_locked(db: Database) -> None:
    ids = [row["task_id"] for row in enqueue_many(db.connect(), [{"type": "default.work"}] * 6)]
    one, other = (db.connect("holdfast_worker", autocommit=False) for _ in range(2))
    other.execute("set lock_timeout = '5s'")

    first, second = claim(one, "w1", max_tasks=2), claim(other, "w2", max_tasks=9)

    assert [task["task_id"] for task in first] == ids[:2]
    assert [task["task_id"] for task in second] == ids[2:]


def test_over_several_lanes_too_a_claim_takes_what_another_one_has_not_locked(db: Database) -> None:
    tasks = [{"type": f"default.t{n % 3}"} for n in range(60)]
    ids = [row["task_id"] for row in enqueue_many(db.connect(), tasks)]
    one, other = (db.connect("holdfast_worker", autocommit=False) for _ in range(2))
    other.execute("set lock_timeout = '5s'")

    first, second = claim(one, "w1", max_tasks=50), claim(other, "w2", max_tasks=5)

    assert [task["task_id"] for task in first] == ids[:50]
    assert [task["task_id"] for task in second] == ids[50:55]


def test_claimers_at_once_never_share_a_task(db: Database) -> None:
    enqueue_many(db.connect(), [{"type": f"default.t{n % 3}", "priority": n % 2} for n in range(600)])
    workers = [db.connect("holdfast_worker") for _ in range(6)]

    def drain(worker: Connection) -> list[Any]:
        return [task for page in _claim_all(worker, max_tasks=7) for task in page]

    claimed = [task for tasks in at_once(drain, workers) for task in tasks]

    assert len(claimed) == len(set(claimed)) == 600
    assert_invariant(db.connect())


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_under_stricter_isolation_a_claim_works(db: Database, level: str) -> None:
    task_id = enqueue(db.connect())
    worker = db.connect("holdfast_worker", autocommit=False)
    worker.execute(f"set transaction isolation level {level}".encode())

    assert claim_one(worker)["task_id"] == task_id
    worker.commit()
    assert status(db.connect(), task_id)["status"] == "claimed"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_under_stricter_isolation_a_claim_never_takes_what_another_one_took(db: Database, level: str) -> None:
    enqueue(db.connect())
    strict, other = db.connect("holdfast_worker", autocommit=False), db.connect("holdfast_worker")
    strict.execute(f"set transaction isolation level {level}".encode())
    strict.execute("select queues.explain(null)")  # takes its snapshot
    assert len(claim(other, "w2")) == 1

    with pytest.raises(psycopg.errors.SerializationFailure):
        claim(strict)
    strict.rollback()
    assert claim(strict) == []
    assert_invariant(db.connect())


def test_the_callers_session_settings_do_not_change_what_is_claimed(db: Database) -> None:
    ids = [row["task_id"] for row in enqueue_many(db.connect(), [{"type": "default.work"}] * 3)]
    worker = db.connect("holdfast_worker")
    worker.execute("set datestyle = 'SQL, DMY'")
    worker.execute("set intervalstyle = 'sql_standard'")
    worker.execute("set timezone = 'Asia/Kathmandu'")
    worker.execute("set search_path = pg_temp")
    (row,) = worker.execute(
        """with first as (select * from queues.claim('w1', 1))
           select lane_id, to_jsonb(run_at) #>> '{}' as run_at, task_id from first"""
    ).fetchall()

    after = {str(row[0]): {"run_at": row[1], "task_id": str(row[2])}}

    rest = worker.execute("select task_id from queues.claim('w1', 2, after => %s)", [Jsonb(after)]).fetchall()

    assert [task_id for (task_id,) in rest] == ids[1:]
