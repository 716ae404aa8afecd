"""Joins, tasks after others and unique tasks in every order: no wake-up is lost, and nothing runs twice."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    Row,
    answer,
    call,
    claim,
    claim_one,
    end,
    enqueue,
    rows,
    status,
    sweep,
    value,
)
from support.invariant import assert_invariant
from support.orders import Session, Step, merged

Stage = tuple[Connection, Clock, Session, Session]


@pytest.fixture
def stage(db: Database) -> Stage:
    conn = db.connect()
    return conn, Clock(conn), Session(db), Session(db)


def parent_of(conn: Connection, children: int) -> tuple[Row, list[Row]]:
    """A running parent whose children run, too."""
    enqueue(conn, "run.parent")
    parent = claim_one(conn, queues=["run"])
    of = {
        "task_id": parent["task_id"],
        "token": parent["token"],
        "name": "pack",
        "number": 1,
        "awaited": True,
    }
    tasks = [{"type": "work.pack", "payload": {"n": n}} for n in range(children)]
    call(conn, "queues.start_children", {"worker_id": "w1", "held": of, "tasks": tasks})
    return parent, claim(conn, queues=["work"], max_tasks=children)


def suspend(conn: Connection, parent: Row, clock: Clock) -> None:
    wait = {"name": "pack", "policy": "all", "until": clock.after(3600)}
    end(conn, parent, "suspend", run_at=clock.after(3600), waits=[wait])


def look(conn: Connection, *task_ids: Any) -> None:
    answer(conn, "queues.wake_waiting", {"task_ids": list(task_ids)})


def ending(session: Session, child: Row) -> list[Step]:
    """As a worker does: the finish, and after its commit the look at joins."""
    task_ids = [child["task_id"]]
    return [
        *session.run(lambda conn: end(conn, child)),
        *session.run(lambda conn: answer(conn, "queues.wake_joined", {"task_ids": task_ids})),
    ]


def orders(one: int, other: int) -> Iterator[int]:
    return iter(range(len(list(merged([print] * one, [print] * other)))))


def test_a_suspension_and_the_end_of_a_child(stage: Stage) -> None:
    conn, clock, one, other = stage
    for order in orders(4, 4):
        parent, (child,) = parent_of(conn, 1)
        suspending = [
            *one.run(lambda conn, parent=parent: suspend(conn, parent, clock)),  # type: ignore[misc]
            *one.run(lambda conn, parent=parent: look(conn, parent["task_id"])),  # type: ignore[misc]
        ]
        for step in list(merged(suspending, ending(other, child)))[order]:
            step()
        look(conn, parent["task_id"])  # of a worker that found the join locked
        assert_invariant(conn)
        (woken,) = claim(conn, queues=["run"])
        assert woken["task_id"] == parent["task_id"]
        end(conn, woken, steps=[])


def test_two_children_that_end_at_the_same_time(stage: Stage) -> None:
    conn, clock, one, other = stage
    for order in orders(4, 4):
        parent, (first, second) = parent_of(conn, 2)
        suspend(conn, parent, clock)
        look(conn, parent["task_id"])
        for step in list(merged(ending(one, first), ending(other, second)))[order]:
            step()
        look(conn, parent["task_id"])  # after a pointer that moved
        (woken,) = claim(conn, queues=["run"])
        assert woken["task_id"] == parent["task_id"]
        end(conn, woken, steps=[])
    assert rows(conn, "select from queues.wait") == []


def test_the_end_of_a_child_and_the_cancel_of_its_parent(stage: Stage) -> None:
    conn, clock, one, other = stage
    for order in orders(4, 2):
        parent, (child,) = parent_of(conn, 1)
        suspend(conn, parent, clock)
        look(conn, parent["task_id"])
        cancelling = other.run(
            lambda conn, parent=parent: answer(conn, "queues.cancel", {"task_id": parent["task_id"]})  # type: ignore[misc]
        )
        for step in list(merged(ending(one, child), cancelling))[order]:
            try:
                step()
            except psycopg.errors.LockNotAvailable:  # the cancel waits for the look
                other.conn.rollback()
                one.conn.commit()
                step()
        sweep(conn)
        assert status(conn, parent["task_id"])["status"] == "cancelled"
        assert status(conn, child["task_id"])["status"] in ("succeeded", "cancelled")
        assert rows(conn, "select from queues.wait") == rows(conn, "select from queues.chore") == []
        assert_invariant(conn)


def test_a_task_that_is_enqueued_after_one_that_ends_meanwhile(stage: Stage) -> None:
    conn, _, one, other = stage
    for order in orders(4, 2):
        enqueue(conn, "work.first")
        first = claim_one(conn, queues=["work"])
        arguments = ['[{"type": "run.next"}]', [first["task_id"]]]
        enqueuing = other.run(
            lambda conn, arguments=arguments: conn.execute("select queues.enqueue_after(%s, %s)", arguments)  # type: ignore[misc]
        )
        for step in list(merged(ending(one, first), enqueuing))[order]:
            step()
        sweep(conn)
        (following,) = claim(conn, queues=["run"])
        end(conn, following)


def test_a_batch_that_grows_while_its_last_task_ends(stage: Stage) -> None:
    """Either both are in the batch when it is over, or the member had ended before it could add."""
    conn, _, one, other = stage
    for order in orders(2, 4):
        first = enqueue(conn, "work.first")
        last = value(
            conn, "select task_id from queues.enqueue_after(%s, %s)", ['[{"type": "run.next"}]', [first]]
        )
        member = claim_one(conn, queues=["work"])
        of = {"task_id": first, "token": member["token"], "name": "add", "number": 1, "batch": True}
        arguments = {"worker_id": "w1", "held": of, "tasks": [{"type": "work.first"}]}
        answers: list[list[Row]] = []
        ended: list[str] = []

        def add(conn: Connection, arguments: Any = arguments, answers: Any = answers) -> None:
            answers.append(call(conn, "queues.start_children", arguments))

        def finish(conn: Connection, member: Row = member, ended: Any = ended) -> None:
            ended.append(end(conn, member))

        look = other.run(lambda conn, first=first: answer(conn, "queues.wake_joined", {"task_ids": [first]}))  # type: ignore[misc]
        for step in list(merged(one.run(add), [*other.run(finish), *look]))[order]:
            step()
        if ended == ["busy"]:  # the worker repeats its report
            end(conn, member)
        sweep(conn)
        [[row]] = answers
        if row["verdict"] == "started":
            assert claim(conn, queues=["run"]) == []
            end(conn, claim_one(conn, queues=["work"]))
            sweep(conn)
        else:
            assert row["verdict"] in ("lost", "busy")
        (following,) = claim(conn, queues=["run"])
        assert following["task_id"] == last
        end(conn, following)
        assert_invariant(conn)
        assert rows(conn, "select from queues.wait") == []


def unique(conn: Connection, kind: str = "waiting") -> Any:
    query = "select task_id from queues.enqueue_unique('work.sync', key => 'k', \"unique\" => %s)"
    return value(conn, query, [kind])


def test_of_two_unique_enqueues_at_once_the_second_waits_and_finds_the_first(stage: Stage) -> None:
    _, _, one, other = stage
    first = unique(one.conn)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        unique(other.conn)
    other.conn.rollback()
    one.conn.commit()
    assert unique(other.conn) == first


def test_one_enqueue_at_a_time_takes_over_the_key_of_a_task_that_has_ended(stage: Stage) -> None:
    conn, _, one, other = stage
    unique(conn)
    end(conn, claim_one(conn, queues=["work"]))
    find = "select queues.find_unique('work.sync', 'k', 'waiting', null, null)"
    one.conn.execute(find)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        other.conn.execute(find)


def test_a_unique_enqueue_takes_the_place_of_one_that_is_rolled_back(stage: Stage) -> None:
    conn, _, one, other = stage
    unique(one.conn)
    one.conn.rollback()
    second = unique(other.conn)
    other.conn.commit()
    assert [row["task_id"] for row in claim(conn, queues=["work"])] == [second]


def test_a_waiting_task_is_not_claimed_before_the_enqueue_that_found_it_is_committed(stage: Stage) -> None:
    conn, _, one, other = stage
    first = unique(conn)
    assert unique(one.conn) == first
    assert claim(other.conn, queues=["work"]) == []
    one.conn.commit()
    assert [row["task_id"] for row in claim(other.conn, queues=["work"])] == [first]


@pytest.mark.parametrize("commits", [True, False])
def test_a_unique_enqueue_during_a_claim_waits_for_it(stage: Stage, commits: bool) -> None:
    conn, _, one, other = stage
    first = unique(conn)
    claim(one.conn, queues=["work"])
    with pytest.raises(psycopg.errors.LockNotAvailable):
        unique(other.conn)
    other.conn.rollback()
    (one.conn.commit if commits else one.conn.rollback)()
    assert (unique(other.conn) == first) is not commits


@pytest.mark.parametrize("commits", [True, False])
def test_an_unfinished_task_counts_until_its_finish_is_committed(stage: Stage, commits: bool) -> None:
    conn, _, one, other = stage
    first = unique(conn, "unfinished")
    (task,) = claim(conn, queues=["work"])
    end(one.conn, task)
    assert unique(other.conn, "unfinished") == first
    other.conn.rollback()
    (one.conn.commit if commits else one.conn.rollback)()
    assert (unique(other.conn, "unfinished") == first) is not commits


def debounced(conn: Connection, n: int) -> Any:
    query = "select task_id from queues.enqueue_unique('work.sync', %s, 'k', debounce => '0 s')"
    return value(conn, query, [f'{{"n": {n}}}'])


def test_a_debounced_task_that_is_being_claimed_runs_and_the_next_one_does_too(stage: Stage) -> None:
    conn, _, one, other = stage
    debounced(conn, 1)
    (claimed,) = claim(one.conn, queues=["work"])
    with pytest.raises(psycopg.errors.LockNotAvailable):
        debounced(other.conn, 2)
    other.conn.rollback()
    one.conn.commit()
    debounced(other.conn, 2)
    other.conn.commit()
    assert [claimed["payload"], *(row["payload"] for row in claim(conn, queues=["work"]))] == [
        {"n": 1},
        {"n": 2},
    ]


@pytest.mark.parametrize("commits", [True, False])
def test_of_a_debounced_task_and_the_one_that_replaces_it_exactly_one_is_claimed(
    stage: Stage, commits: bool
) -> None:
    conn, _, one, other = stage
    debounced(conn, 1)
    debounced(one.conn, 2)
    assert claim(other.conn, queues=["work"]) == []
    other.conn.commit()
    (one.conn.commit if commits else one.conn.rollback)()
    assert [row["payload"] for row in claim(conn, queues=["work"])] == [{"n": 2 if commits else 1}]
