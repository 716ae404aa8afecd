"""Claims of 50 tasks or more take turns in each lane, and each goes on where the last one ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, act, claim, end, enqueue, enqueue_many, rows, value
from support.invariant import assert_invariant

LARGE = 50
TYPES = ("mail.send", "mail.sort")


@pytest.fixture
def conn(db: Database) -> Connection:
    return db.connect()


@pytest.fixture
def clock(conn: Connection) -> Clock:
    return Clock(conn)


def fill(
    conn: Connection, count: int, *, types: tuple[str, ...] = ("mail.send",), **options: Any
) -> list[Any]:
    """The ids, in the order in which the tasks are due."""
    tasks = [{"type": types[n % len(types)], "queue": "mail", **options} for n in range(count)]
    return [task["task_id"] for task in enqueue_many(conn, tasks)]


def take(conn: Connection, worker: str = "w1", count: int = LARGE) -> list[Any]:
    return [task["task_id"] for task in claim(conn, worker, max_tasks=count, queues=["mail"])]


@contextmanager
def held(conn: Connection) -> Iterator[None]:
    """A transaction that stays open and is undone."""
    with conn.transaction(force_rollback=True):
        yield


@pytest.mark.parametrize("types", [TYPES[:1], TYPES])
def test_a_large_claim_goes_on_where_that_of_another_worker_ended(
    db: Database, conn: Connection, clock: Clock, types: tuple[str, ...]
) -> None:
    expected = fill(conn, 3 * LARGE + 10, types=types)
    sessions = [db.connect() for _ in range(2)]

    found = [take(sessions[n % 2], f"w{n % 2}") for n in range(5)]

    assert found == [expected[:50], expected[50:100], expected[100:150], expected[150:], []]
    assert_invariant(conn)


@pytest.mark.parametrize("types", [TYPES[:1], TYPES])
def test_a_task_that_is_due_earlier_is_found_a_second_later(
    conn: Connection, clock: Clock, types: tuple[str, ...]
) -> None:
    expected = fill(conn, 4 * LARGE, types=types)
    assert take(conn) == expected[:LARGE]
    early = enqueue(conn, "mail.send", queue="mail", run_at=clock.now.replace(hour=1))

    assert take(conn) == expected[LARGE : 2 * LARGE]
    clock.advance(1)
    assert take(conn) == [early, *expected[2 * LARGE : 3 * LARGE - 1]]


def test_tasks_of_higher_priority_come_first(conn: Connection, clock: Clock) -> None:
    usual = fill(conn, 2 * LARGE)
    assert take(conn) == usual[:LARGE]
    urgent = fill(conn, 10, priority=5)

    assert take(conn) == [*urgent, *usual[LARGE : 2 * LARGE - 10]]


def test_a_claim_of_the_rest_looks_from_the_beginning(conn: Connection, clock: Clock) -> None:
    expected = fill(conn, LARGE + 5)
    assert take(conn) == expected[:LARGE]
    early = enqueue(conn, "mail.send", queue="mail", run_at=clock.now.replace(hour=1))

    assert take(conn) == [early, *expected[LARGE:]]


def test_a_row_that_another_session_has_locked_is_left_out_and_found_later(
    db: Database, conn: Connection, clock: Clock
) -> None:
    expected = fill(conn, 4 * LARGE)
    assert take(conn) == expected[:LARGE]
    other = db.connect()

    with held(other):
        act(other, "cancel", expected[LARGE])
        assert take(conn) == expected[LARGE + 1 : 2 * LARGE + 1]
    clock.advance(1)
    assert take(conn) == [expected[LARGE], *expected[2 * LARGE + 1 : 3 * LARGE]]


def test_small_claims_and_large_ones_share_the_tasks(db: Database, conn: Connection, clock: Clock) -> None:
    expected = fill(conn, 4 * LARGE)
    other = db.connect()
    assert take(conn) == expected[:LARGE]

    with other.transaction():
        assert take(other, "w2", 3) == expected[LARGE : LARGE + 3]
        assert take(conn) == expected[LARGE + 3 : 2 * LARGE + 3]

    assert take(other, "w2", 1) == [expected[2 * LARGE + 3]]
    assert_invariant(conn)


def test_a_claim_whose_transaction_stays_open_does_not_stop_the_others(
    db: Database, conn: Connection, clock: Clock
) -> None:
    expected = fill(conn, 4 * LARGE)
    other = db.connect()

    with held(other):
        assert take(other, "w2") == expected[:LARGE]
        assert take(conn) == expected[LARGE : 2 * LARGE]
    clock.advance(1)
    assert take(conn) == [*expected[:LARGE]]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_under_stricter_isolation_a_claim_takes_no_turn(
    conn: Connection, clock: Clock, isolation: str
) -> None:
    expected = fill(conn, 2 * LARGE)

    with conn.transaction():
        conn.execute(f"set transaction isolation level {isolation}")
        assert take(conn) == expected[:LARGE]

    assert value(conn, "select count(*) from queues.claim_position") == 0


def test_a_claim_that_waited_for_one_that_emptied_the_lane_does_not_look_again(
    conn: Connection, clock: Clock
) -> None:
    began = clock.now
    fill(conn, LARGE + 1)
    take(conn)
    clock.advance(0.5)
    assert len(take(conn)) == 1
    late = fill(conn, 1)

    def pick(since: Any) -> int:
        return len(
            value(
                conn,
                "select p.picked from queues.pick_in_turn("
                "array(select l.lane_id from queues.lane l), '{0}', 50, %s) p",
                [since],
            )
        )

    assert pick(began) == 0
    assert pick(clock.now) == 1
    assert take(conn) == late


def test_positions_are_few_and_go_with_their_lane(conn: Connection, clock: Clock) -> None:
    fill(conn, 10 * LARGE)
    for _ in range(5):
        clock.advance(0.4)
        for task in claim(conn, "w1", max_tasks=LARGE, queues=["mail"]):
            end(conn, task)
        # At most those of a second, and the one that began it.
        assert value(conn, "select count(*) from queues.claim_position") <= 4

    while take(conn):
        pass
    conn.execute(
        "select queues.release('w1', (select jsonb_agg(jsonb_build_object("
        "'task_id', l.task_id, 'token', l.token)) from queues.lease l))"
    )
    for task in claim(conn, "w1", max_tasks=1000, queues=["mail"]):
        end(conn, task)
    clock.advance(61)
    while value(conn, "select queues.tidy_lanes()"):
        pass
    assert rows(conn, "select * from queues.claim_position") == []
