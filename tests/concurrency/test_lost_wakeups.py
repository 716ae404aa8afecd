"""Suspensions and signals in every order: no wake-up is lost, none is invented, and no session waits."""

from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, Row, answer, call, claim, claim_one, end, enqueue, held, status, sweep
from support.invariant import assert_invariant
from support.orders import Session, merged


def suspend(conn: Connection, task: Row, clock: Clock) -> None:
    wait = {"name": "decision", "signal": "decision", "until": clock.after(3600)}
    end(conn, task, "suspend", run_at=clock.after(3600), waits=[wait])


def signal(conn: Connection, task: Row, name: str = "decision") -> Any:
    return answer(conn, "queues.signal", {"task_id": task["task_id"], "name": name, "payload": 1})


def look(conn: Connection, *tasks: Row) -> None:
    answer(conn, "queues.wake_waiting", {"task_ids": [task["task_id"] for task in tasks]})


@pytest.fixture
def stage(db: Database) -> tuple[Connection, Clock, Session, Session]:
    conn = db.connect()
    return conn, Clock(conn), Session(db), Session(db)


@pytest.mark.parametrize("sweeps", [True, False], ids=["with sweeps between", "without"])
@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
def test_a_suspension_and_a_signal(
    stage: tuple[Connection, Clock, Session, Session], commits: bool, sweeps: bool
) -> None:
    conn, clock, worker, application = stage
    for order in range(len(list(merged([print] * 4, [print] * 2)))):
        enqueue(conn)
        task = claim_one(conn)
        suspending = [
            *worker.run(lambda conn, task=task: suspend(conn, task, clock)),  # type: ignore[misc]
            *worker.run(lambda conn, task=task: look(conn, task)),  # type: ignore[misc]
        ]
        signalling = application.run(lambda conn, task=task: signal(conn, task), commits=commits)  # type: ignore[misc]
        for step in list(merged(suspending, signalling))[order]:
            step()
            if sweeps:
                sweep(conn)
        sweep(conn)
        assert_invariant(conn)
        woken = [row["task_id"] for row in claim(conn)]
        assert woken == ([task["task_id"]] if commits else [])
        end(conn, claim_again(conn, task, woken), steps=[])


def claim_again(conn: Connection, task: Row, woken: list[Any]) -> Row:
    """The run as it is held, so that the test can end it."""
    if not woken:
        answer(conn, "queues.cancel", {"task_id": task["task_id"]})
        return task
    (row,) = call(conn, "queues.read_steps", {"worker_id": "w1", "held": []}) or [task]
    found = conn.execute("select token from queues.lease where task_id = %s", [task["task_id"]]).fetchone()
    assert found
    return {**row, "task_id": task["task_id"], "token": found[0]}


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
def test_a_signal_and_the_end_of_the_timeout(
    stage: tuple[Connection, Clock, Session, Session], commits: bool
) -> None:
    """In either order, the run is claimed once, and the signal is there for it or for its next wait."""
    conn, clock, worker, application = stage
    for order in range(6):
        enqueue(conn)
        task = claim_one(conn)
        suspend(conn, task, clock)
        look(conn, task)
        clock.advance(3600)
        claimed: list[Row] = []
        claiming = worker.run(lambda conn, claimed=claimed: claimed.extend(claim(conn, "w2")))  # type: ignore[misc]
        signalling = application.run(lambda conn, task=task: signal(conn, task), commits=commits)  # type: ignore[misc]
        for step in list(merged(claiming, signalling))[order]:
            step()
        sweep(conn)
        claimed += claim(conn, "w2")
        assert [row["task_id"] for row in claimed] == [task["task_id"]]
        facts = call(conn, "queues.read_steps", {"worker_id": "w2", "held": held(claimed[0])})
        assert [row["name"] for row in facts if row["fact"] == "signal"] == (["decision"] if commits else [])
        end(conn, claimed[0], worker_id="w2", steps=[])


def test_two_signals_do_not_wait_for_each_other(stage: tuple[Connection, Clock, Session, Session]) -> None:
    conn, clock, one, other = stage
    for first, second in ((True, True), (True, False), (False, True)):
        enqueue(conn)
        task = claim_one(conn)
        suspend(conn, task, clock)
        look(conn, task)
        signal(one.conn, task)
        signal(other.conn, task)
        (one.conn.commit if first else one.conn.rollback)()
        (other.conn.commit if second else other.conn.rollback)()
        sweep(conn)
        (woken,) = claim(conn)
        end(conn, woken, steps=[])


def test_a_signal_is_not_lost_when_another_one_that_moved_the_run_is_rolled_back(
    stage: tuple[Connection, Clock, Session, Session],
) -> None:
    conn, clock, one, other = stage
    enqueue(conn)
    task = claim_one(conn)
    suspend(conn, task, clock)
    look(conn, task)
    signal(one.conn, task)
    signal(other.conn, task)
    other.conn.commit()

    sweep(conn)
    assert claim(conn) == []
    one.conn.rollback()
    sweep(conn)

    assert [row["task_id"] for row in claim(conn)] == [task["task_id"]]


def test_a_worker_does_not_wait_for_an_application_that_signals(
    stage: tuple[Connection, Clock, Session, Session],
) -> None:
    conn, clock, worker, application = stage
    enqueue(conn)
    task = claim_one(conn)
    suspend(conn, task, clock)
    signal(application.conn, task)

    look(worker.conn, task)
    sweep(worker.conn)
    assert claim(worker.conn) == []
    worker.conn.commit()
    application.conn.rollback()

    assert status(conn, task["task_id"])["status"] == "suspended"


def test_a_cancel_waits_for_an_open_signal_and_ends_the_run(
    stage: tuple[Connection, Clock, Session, Session],
) -> None:
    conn, clock, _, application = stage
    enqueue(conn)
    task = claim_one(conn)
    suspend(conn, task, clock)
    signal(application.conn, task)
    conn.execute("set lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        answer(conn, "queues.cancel", {"task_id": task["task_id"]})
    application.conn.commit()

    assert answer(conn, "queues.cancel", {"task_id": task["task_id"]}) == "cancelled"
    assert signal(conn, task) == "ended"


@pytest.mark.parametrize("comes_alone", [True, False])
def test_a_lease_is_not_taken_while_its_step_is_being_recorded(
    stage: tuple[Connection, Clock, Session, Session], comes_alone: bool
) -> None:
    """So a later claim sees every step that an earlier one recorded."""
    conn, clock, worker, _ = stage
    enqueue(conn)
    task = claim_one(conn)
    step = {"name": "charge", "number": 1}
    if comes_alone:
        lease = {"worker_id": "w1", "task_id": task["task_id"], "token": task["token"]}
        assert answer(worker.conn, "queues.record_step", {**lease, **step, "took_ms": 0, "result": "1"})
    else:
        runs = held(task, steps=[{**step, "kind": "step"}])
        call(worker.conn, "queues.record_steps", {"worker_id": "w1", "runs": runs})
    clock.advance(31)

    assert sweep(conn) == {"recovered": 0, "dead": 0}
    worker.conn.commit()
    assert sweep(conn) == {"recovered": 1, "dead": 0}
    facts = call(conn, "queues.read_steps", {"worker_id": "w2", "held": held(claim_one(conn, "w2"))})
    assert [row["name"] for row in facts if row["fact"] == "step"] == ["charge"]


def test_a_call_that_is_repeated_while_the_first_is_under_way_is_told_to_wait(
    stage: tuple[Connection, Clock, Session, Session],
) -> None:
    conn, _, cut, again = stage
    enqueue(conn)
    task = claim_one(conn)
    arguments = {
        "worker_id": "w1",
        "runs": held(task, steps=[{"name": "charge", "number": 1, "kind": "step"}]),
    }
    call(cut.conn, "queues.record_steps", arguments)

    (busy,) = call(again.conn, "queues.record_steps", arguments)
    again.conn.commit()
    cut.conn.commit()
    (already,) = call(again.conn, "queues.record_steps", arguments)

    assert (busy["verdict"], already["verdict"]) == ("busy", "already")
    assert already["stored"][0]["token"] == task["token"]
