"""queues.heartbeat: prolongs leases, and says what became of each."""

from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    JsonText,
    act,
    claim,
    claim_one,
    counts,
    end,
    enqueue,
    enqueue_many,
    heartbeat,
    held,
    refused,
    rows,
    status,
    sweep,
    value,
)


def test_a_lease_is_prolonged_by_its_own_length_from_now(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, lease="45 seconds")
    task = claim_one(tx)
    clock.advance(20)

    assert heartbeat(tx, held(task)) == ["held"]
    assert status(tx, task_id)["lease_until"] == clock.after(45)


def test_a_lease_that_ended_but_was_not_taken_away_is_prolonged(tx: Connection, clock: Clock) -> None:
    enqueue(tx)
    task = claim_one(tx)
    clock.advance(3600)

    assert heartbeat(tx, held(task)) == ["held"]
    assert sweep(tx) == {"recovered": 0, "dead": 0}


def test_the_verdicts_come_in_the_order_given(tx: Connection, clock: Clock) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 4)
    kept, cancelled, deleted, done = claim(tx, max_tasks=4)
    act(tx, "cancel", cancelled["task_id"])
    act(tx, "delete_task", deleted["task_id"])
    end(tx, done)

    verdicts = heartbeat(tx, held(done, deleted, kept, cancelled))

    assert verdicts == ["lost", "deleted", "held", "cancelled"]


def test_a_task_named_twice_is_held_twice(tx: Connection) -> None:
    enqueue(tx)
    task = claim_one(tx)

    assert heartbeat(tx, held(task, task)) == ["held", "held"]


def test_with_a_wrong_token_or_worker_a_lease_is_lost(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    task = claim_one(tx)
    until = clock.after(30)
    clock.advance(5)

    assert heartbeat(tx, held({**task, "token": task["token"] + 1})) == ["lost"]
    assert heartbeat(tx, held({**task, "token": task["token"] - 1})) == ["lost"]
    assert heartbeat(tx, held(task), "somebody else") == ["lost"]
    assert status(tx, task_id)["lease_until"] == until


def test_after_it_was_claimed_again_the_former_holder_has_lost_it(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    former = claim_one(tx)
    clock.advance(31)
    sweep(tx)
    present = claim_one(tx)
    clock.advance(5)

    assert heartbeat(tx, held(former)) == ["lost"]
    assert status(tx, task_id)["lease_until"] == present["lease_until"]
    assert heartbeat(tx, held(present)) == ["held"]


def test_an_unknown_task_is_lost(tx: Connection) -> None:
    unknown = {"task_id": "00000000-0000-7000-8000-000000000000", "token": 1}

    assert heartbeat(tx, [unknown]) == ["lost"]


def test_the_first_started_at_counts(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    task = claim_one(tx)
    started = clock.advance(2)
    clock.advance(3)

    heartbeat(tx, held(task, started_at=started))
    assert (status(tx, task_id)["status"], status(tx, task_id)["started_at"]) == ("running", started)

    heartbeat(tx, held(task, started_at=clock.now))
    assert status(tx, task_id)["started_at"] == started


@pytest.mark.parametrize(("told", "kept"), [(-3600, 0), (3600, 5), (2, 2)])
def test_started_at_is_kept_between_the_claim_and_now(
    tx: Connection, clock: Clock, told: float, kept: float
) -> None:
    task_id = enqueue(tx)
    claimed = clock.now
    task = claim_one(tx)
    told_at, kept_at = clock.after(told), clock.after(kept)
    clock.advance(5)

    heartbeat(tx, held(task, started_at=told_at))

    assert claimed <= status(tx, task_id)["started_at"] == kept_at


def test_without_started_at_a_task_stays_claimed(tx: Connection) -> None:
    task_id = enqueue(tx)

    heartbeat(tx, held(claim_one(tx)))

    assert status(tx, task_id)["status"] == "claimed"


def test_progress_is_kept_until_there_is_more(tx: Connection) -> None:
    task_id = enqueue(tx)
    task = claim_one(tx)

    heartbeat(tx, held(task, progress={"done": 3, "of": 10}))

    assert status(tx, task_id)["progress"] == {"done": 3, "of": 10}


def test_a_beat_without_progress_keeps_the_last_one(tx: Connection) -> None:
    task_id = enqueue(tx)
    task = claim_one(tx)
    heartbeat(tx, held(task, progress={"done": 3}))

    heartbeat(tx, held(task))

    assert status(tx, task_id)["progress"] == {"done": 3}


@pytest.mark.parametrize("progress", ['"' + "x" * 9000 + '"', "[1e400]", "[" * 70 + "]" * 70, "[1e131071]"])
def test_progress_that_nobody_could_read_is_left_out_and_the_lease_prolonged(
    tx: Connection, clock: Clock, progress: str
) -> None:
    task_id = enqueue(tx)
    task = claim_one(tx)
    heartbeat(tx, held(task, progress={"done": 3}))
    clock.advance(9)

    given = f'[{{"task_id": "{task["task_id"]}", "token": {task["token"]}, "progress": {progress}}}]'
    assert heartbeat(tx, JsonText(given)) == ["held"]
    assert status(tx, task_id)["progress"] == {"done": 3}
    assert status(tx, task_id)["lease_until"] == clock.after(30)


def test_it_is_also_the_workers_own_sign_of_life(tx: Connection, clock: Clock) -> None:
    tx.execute("select queues.register_worker('w1')")
    enqueue_many(tx, [{"type": "default.work"}] * 2)
    tasks = claim(tx, max_tasks=2)
    clock.advance(5)

    heartbeat(tx, held(*tasks))

    (worker,) = rows(tx, "select last_heartbeat, in_flight from queues.worker_status")
    assert worker == {"last_heartbeat": clock.now, "in_flight": 2}


def test_a_worker_with_nothing_in_hand_can_give_a_sign_of_life(tx: Connection, clock: Clock) -> None:
    tx.execute("select queues.register_worker('w1')")
    clock.advance(5)

    assert heartbeat(tx, []) == []
    assert value(tx, "select last_heartbeat from queues.worker_status") == clock.now


@pytest.mark.parametrize("given", [None, {}, 7, "text"])
def test_what_is_not_an_array_is_refused(tx: Connection, given: Any) -> None:
    with refused(tx, "QF400", "held"):
        heartbeat(tx, given)


@pytest.mark.parametrize("element", [None, 7, "text", []])
def test_an_element_that_is_not_an_object_is_refused(tx: Connection, element: Any) -> None:
    with refused(tx, "QF400", "held[0]"):
        heartbeat(tx, [element])


@pytest.mark.parametrize(
    "wrong",
    [{"task_id": "no uuid"}, {"token": "many"}, {"token": 1e30}, {"token": 1.5}, {"started_at": "soon"}],
)
def test_a_malformed_element_refuses_the_call_and_prolongs_nothing(
    tx: Connection, clock: Clock, wrong: dict[str, Any]
) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 2)
    one, other = claim(tx, max_tasks=2)
    before = counts(tx)
    clock.advance(5)

    with pytest.raises(psycopg.DataError), tx.transaction():
        heartbeat(tx, [*held(one), {**held(other)[0], **wrong}])
    assert counts(tx) == before
    assert status(tx, one["task_id"])["lease_until"] == one["lease_until"]


def test_a_lease_that_an_application_is_cancelling_is_busy_and_the_others_are_prolonged(db: Database) -> None:
    """The application stays in its transaction; nothing here waits for it."""
    client = db.connect("holdfast_client", autocommit=False)
    own = enqueue(client)
    client.commit()
    enqueue_many(db.connect(), [{"type": "default.work"}] * 2)
    worker = db.connect("holdfast_worker")
    worker.execute("select queues.register_worker('w1', 'host')")
    tasks = claim(worker, max_tasks=3)
    act(client, "cancel", own)

    verdicts = dict(zip([task["task_id"] for task in tasks], heartbeat(worker, held(*tasks)), strict=True))
    assert verdicts.pop(own) == "busy"
    assert [*verdicts.values()] == ["held", "held"]
    renewed = "select count(*) from queues.lease where lease_until > claimed_at + lease_ms * interval '1 ms'"
    admin = db.connect()
    assert value(admin, renewed) == 2
    assert value(admin, "select in_flight from queues.worker") == 3

    client.rollback()
    assert heartbeat(worker, held(*tasks)) == ["held"] * 3


def test_a_busy_lease_is_cancelled_once_the_application_has_committed(db: Database) -> None:
    client = db.connect("holdfast_client", autocommit=False)
    own = enqueue(client)
    client.commit()
    worker = db.connect("holdfast_worker")
    task = claim_one(worker)
    act(client, "cancel", own)
    assert heartbeat(worker, held(task)) == ["busy"]
    client.commit()
    assert heartbeat(worker, held(task)) == ["cancelled"]


def test_a_worker_whose_own_row_is_locked_still_keeps_its_leases(db: Database) -> None:
    enqueue(db.connect())
    worker = db.connect("holdfast_worker")
    worker.execute("select queues.register_worker('w1', 'host')")
    task = claim_one(worker)
    other = db.connect("holdfast_worker", autocommit=False)
    other.execute("select queues.mark_idle('w1', true)")
    assert heartbeat(worker, held(task)) == ["held"]
