"""Lanes: which tasks share one, and how idle ones are removed."""

from datetime import timedelta

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    act,
    answer,
    call,
    claim,
    claim_one,
    end,
    enqueue,
    enqueue_many,
    refused,
    rows,
    value,
)
from support.invariant import assert_invariant
from support.limits import fill, set_limit, take


@pytest.fixture
def clock(tx: Connection) -> Clock:
    return Clock(tx)


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


def ask(conn: Connection, key: str | None, *, many: bool = False) -> None:
    if many:
        fill(conn, 1, "mail.keyed", concurrency_key=key)
    else:
        enqueue(conn, "mail.keyed", concurrency_key=key)


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


def test_health_counts_lanes(tx: Connection) -> None:
    use_once(tx, "a", "b", None)
    fill(tx, 1, priority=3)
    (line,) = rows(tx, "select * from queues.health() where check_name = 'lanes'")
    assert (line["value"], line["level"]) == (3, "green")


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


def test_an_enqueue_locks_no_lane(db: Database) -> None:
    """Rows that many lock at once cost more than the tasks. Only who adds a route shares one."""
    client, admin = db.connect(autocommit=False), db.connect()
    use_once(admin, "customer", None)
    for key in ("customer", None):
        ask(client, key)
        ask(client, key, many=True)

    assert len(rows(admin, "select from queues.lane for update nowait")) == 2


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
