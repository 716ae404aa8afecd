"""queues.release: a task given back unfinished keeps its place and its attempts."""

from typing import Any

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    act,
    claim,
    claim_one,
    counts,
    end,
    enqueue,
    enqueue_many,
    held,
    refused,
    release,
    status,
    sweep,
)


def test_the_attempt_does_not_count_and_the_task_gets_its_place_back(tx: Connection, clock: Clock) -> None:
    first = enqueue(tx, run_at=clock.after(-60), max_attempts=1)
    enqueue(tx)
    task = claim_one(tx)
    clock.advance(5)

    assert release(tx, held(task)) == ["released"]

    assert (status(tx, first)["status"], status(tx, first)["attempt"]) == ("pending", 0)
    assert [task["task_id"] for task in claim(tx)] == [first]
    assert status(tx, first)["attempt"] == 1


def test_the_verdicts_come_in_the_order_given(tx: Connection) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 4)
    one, cancelled, done, before = claim(tx, max_tasks=4)
    act(tx, "cancel", cancelled["task_id"])
    end(tx, done)
    release(tx, held(before))

    verdicts = release(tx, held(done, cancelled, before, one))

    assert verdicts == ["lost", "cancelled", "already_done", "released"]


def test_repeating_it_changes_nothing_and_says_so(tx: Connection) -> None:
    enqueue(tx)
    task = claim_one(tx)
    release(tx, held(task))
    before = counts(tx)

    assert release(tx, held(task)) == ["already_done"]
    assert counts(tx) == before


def test_with_a_wrong_token_or_worker_nothing_is_released(tx: Connection) -> None:
    task_id = enqueue(tx)
    task = claim_one(tx)

    assert release(tx, held({**task, "token": task["token"] + 1})) == ["lost"]
    assert release(tx, held(task), "somebody else") == ["lost"]
    assert status(tx, task_id)["status"] == "claimed"


def test_after_it_was_claimed_again_the_former_holder_cannot_release_it(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    former = claim_one(tx)
    clock.advance(31)
    sweep(tx)
    claim_one(tx, "w2")

    assert release(tx, held(former)) == ["lost"]
    assert status(tx, task_id)["worker_id"] == "w2"


def test_a_task_deleted_while_it_ran_is_parked(tx: Connection) -> None:
    task_id = enqueue(tx)
    task = claim_one(tx)
    act(tx, "delete_task", task_id)

    assert release(tx, held(task)) == ["released"]
    assert claim(tx) == []
    assert act(tx, "restore_task", task_id) == "pending"
    assert claim_one(tx)["attempt"] == 1


def test_a_finish_after_a_release_is_heard_by_nobody(tx: Connection) -> None:
    task_id = enqueue(tx)
    task = claim_one(tx)
    release(tx, held(task))

    assert end(tx, task) == "lost"
    assert status(tx, task_id)["status"] == "pending"


@pytest.mark.parametrize("given", [None, {}, 7, [7], [None]])
def test_what_is_not_an_array_of_objects_is_refused(tx: Connection, given: Any) -> None:
    with refused(tx, "QF400", "held"):
        release(tx, given)


def test_a_task_that_an_application_is_cancelling_is_busy_and_the_others_go_back(db: Database) -> None:
    client = db.connect("holdfast_client", autocommit=False)
    own = enqueue(client)
    client.commit()
    enqueue_many(db.connect(), [{"type": "default.work"}] * 2)
    worker = db.connect("holdfast_worker")
    tasks = claim(worker, max_tasks=3)
    act(client, "cancel", own)
    verdicts = dict(zip([task["task_id"] for task in tasks], release(worker, held(*tasks)), strict=True))
    assert verdicts.pop(own) == "busy"
    assert [*verdicts.values()] == ["released", "released"]
    client.rollback()
    assert sorted(release(worker, held(*tasks))) == ["already_done", "already_done", "released"]
