"""queues.finish among other transactions: its commit, its isolation, and tasks that others have locked."""

import psycopg
import pytest

from support.database import Database
from support.engine import (
    Connection,
    act,
    claim,
    claim_one,
    end,
    enqueue,
    enqueue_many,
    finish,
    heartbeat,
    value,
)


def test_a_finish_commits_to_disk_whatever_the_session_says(tx: Connection) -> None:
    tx.execute("set local synchronous_commit = off")

    finish(tx, [])

    assert value(tx, "show synchronous_commit") == "on"


@pytest.mark.parametrize("next_call", ["claim", "heartbeat", "mark_idle"])
def test_a_finish_commits_to_disk_also_when_the_worker_goes_on_in_its_transaction(
    db: Database, next_call: str
) -> None:
    enqueue(db.connect())
    worker = db.connect("holdfast_worker", autocommit=False)
    task = claim_one(worker)
    worker.commit()

    end(worker, task)
    if next_call == "claim":
        claim(worker)
    elif next_call == "heartbeat":
        heartbeat(worker, [])
    else:
        worker.execute("select queues.mark_idle('w1', true)")

    assert value(worker, "show synchronous_commit") == "on"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_under_stricter_isolation_a_finish_works_or_fails_as_a_whole(db: Database, level: str) -> None:
    admin = db.connect()
    enqueue(admin)
    worker = db.connect("holdfast_worker", autocommit=False)
    task = claim_one(worker)
    worker.commit()
    worker.execute(f"set transaction isolation level {level}".encode())
    worker.execute("select queues.explain(null)")  # takes its snapshot
    act(admin, "cancel", task["task_id"])

    with pytest.raises(psycopg.errors.SerializationFailure):
        end(worker, task)
    worker.rollback()
    assert end(worker, task) == "cancelled"


@pytest.mark.parametrize("ending", ["succeeded", "retry", "snooze", "failed"])
def test_a_task_that_an_application_is_cancelling_is_busy_and_the_others_are_settled(
    db: Database, ending: str
) -> None:
    """The application stays in its transaction; nothing here waits for it."""
    client = db.connect("holdfast_client", autocommit=False)
    own = enqueue(client)
    client.commit()
    enqueue_many(db.connect(), [{"type": "default.work"}] * 2)
    worker = db.connect("holdfast_worker")
    tasks = claim(worker, max_tasks=3)
    act(client, "cancel", own)

    results = [{"task_id": task["task_id"], "token": task["token"], "status": ending} for task in tasks]
    verdicts = dict(zip([task["task_id"] for task in tasks], finish(worker, results), strict=True))
    assert verdicts.pop(own) == "busy"
    assert [*verdicts.values()] == ["accepted", "accepted"]

    client.rollback()
    assert sorted(finish(worker, results)) == ["accepted", "already_done", "already_done"]


def test_a_busy_result_is_cancelled_once_the_application_has_committed(db: Database) -> None:
    client = db.connect("holdfast_client", autocommit=False)
    own = enqueue(client)
    client.commit()
    worker = db.connect("holdfast_worker")
    task = claim_one(worker)
    act(client, "cancel", own)
    assert end(worker, task) == "busy"
    assert end(worker, task, worker_id="w2") == "lost"
    client.commit()
    assert end(worker, task) == "cancelled"
