"""queues.enqueue_unique by spec: a deterministic task runs once, and later callers get that run."""

from typing import Any
from uuid import UUID

import pytest

from support.database import Database
from support.engine import (
    Connection,
    Row,
    act,
    call,
    claim,
    claim_one,
    counts,
    end,
    enqueue,
    refused,
    rows,
    status,
    value,
)
from support.sessions import in_background, wait_until_blocked


def reuse(conn: Connection, mode: str = "succeeded", **arguments: Any) -> tuple[UUID, bool]:
    given = {"type": "default.work", "payload": {"a": 1}, '"unique"': mode, **arguments}
    (row,) = call(conn, "queues.enqueue_unique", given)
    return row["task_id"], row["created"]


def test_a_run_that_has_succeeded_answers_for_the_same_spec(tx: Connection) -> None:
    first, created = reuse(tx)
    assert created
    end(tx, claim_one(tx), result={"sum": 3})
    before = counts(tx)

    assert reuse(tx, payload={"a": 1}) == (first, False)
    assert reuse(tx, "active") == (first, False)
    assert counts(tx) == before
    assert status(tx, first)["result"] == {"sum": 3}


@pytest.mark.parametrize(
    "other",
    [
        {"type": "default.other"},
        {"executor": "process"},
        {"payload": {"a": 2}},
        {"payload": {"a": 1.0}},
        {"payload": {"a": 1, "b": None}},
    ],
)
def test_never_one_of_another_spec(tx: Connection, other: dict[str, Any]) -> None:
    first, _ = reuse(tx)
    end(tx, claim_one(tx))

    found, created = reuse(tx, **other)
    assert (created, found == first) == (True, False)


def test_one_under_way_is_joined_only_when_asked_for(tx: Connection) -> None:
    first, _ = reuse(tx, "active")
    assert reuse(tx, "active") == (first, False)
    claim_one(tx)
    assert reuse(tx, "active") == (first, False)

    second, created = reuse(tx, "succeeded")
    assert (created, second == first) == (True, False)
    assert reuse(tx, "active") == (first, False), "who was first goes on to stand for it"


@pytest.mark.parametrize("ending", ["failed", "cancelled", "deleted", "gone"])
def test_one_that_came_to_nothing_is_run_again(tx: Connection, ending: str) -> None:
    first, _ = reuse(tx, "active")
    task = claim_one(tx)
    match ending:
        case "failed":
            end(tx, task, "failed", error="no")
        case "cancelled":
            act(tx, "cancel", first)
        case "deleted":
            end(tx, task)
            act(tx, "delete_task", first)
        case "gone":
            end(tx, task)
            tx.execute("select queues.forget_tasks(array[%s::uuid])", [first])
            assert rows(tx, "select from queues.unique_task") == []

    again, created = reuse(tx, "active")
    assert (created, again == first) == (True, False)
    assert reuse(tx, "active") == (again, False)


def test_tasks_that_did_not_ask_have_no_part_in_it(tx: Connection) -> None:
    plain = enqueue(tx, payload={"a": 1})
    end(tx, claim_one(tx))

    assert rows(tx, "select from queues.unique_task") == []
    found, created = reuse(tx)
    assert (created, found == plain) == (True, False)


def test_a_key_of_a_user_is_no_spec(tx: Connection) -> None:
    found, _ = reuse(tx, "active")
    spec_hash = status(tx, found)["spec_hash"]
    other, created = reuse(tx, "unfinished", payload={"b": 1}, key=spec_hash)
    assert created
    assert reuse(tx, "active") == (found, False)
    assert reuse(tx, "unfinished", payload={"b": 1}, key=spec_hash) == (other, False)


def test_equal_specs_of_a_batch_are_one_task(tx: Connection) -> None:
    batch = [{"type": "default.work", "payload": {"a": n}, "unique": "active"} for n in (1, 2, 1)]
    one, two, again = call(tx, "queues.enqueue_many", {"tasks": batch})
    assert (again["task_id"], two["task_id"] == one["task_id"]) == (one["task_id"], False)
    assert reuse(tx, "active", payload={"a": 2}) == (two["task_id"], False)


def test_what_enqueue_refuses_is_refused_here(tx: Connection) -> None:
    with refused(tx, "QF400", "unique", "always"):
        reuse(tx, "always")
    with refused(tx, "QF400", "key"):
        reuse(tx, key="mine")
    with refused(tx, "QF400", "payload"):
        reuse(tx, payload=None)
    with refused(tx, "QF400", "executor"):
        reuse(tx, executor="nobody")


def test_two_who_ask_at_once_get_one_run(db: Database) -> None:
    first, second = db.connect(autocommit=False), db.connect(autocommit=False)
    found, created = reuse(first, "active")
    assert created
    with in_background(lambda: reuse(second, "active")) as other:
        wait_until_blocked(db.connect(), second)
        first.commit()
        assert other.result() == (found, False)
    second.commit()
    assert value(db.connect(), "select count(*) from queues.task") == 1


def test_one_whose_asker_rolls_back_is_enqueued_by_the_next(db: Database) -> None:
    first, second = db.connect(autocommit=False), db.connect(autocommit=False)
    found, _ = reuse(first, "active")
    with in_background(lambda: reuse(second, "active")) as other:
        wait_until_blocked(db.connect(), second)
        first.rollback()
        task_id, created = other.result()
    assert (created, task_id == found) == (True, False)


def _listed(tx: Connection, spec_hash: str, **arguments: Any) -> list[Row]:
    return call(tx, "queues.list_tasks", {"spec_hash": spec_hash, **arguments})


def test_runs_are_listed_by_their_spec_hash(tx: Connection) -> None:
    one, _, other = (
        enqueue(tx, payload={"a": 1}),
        enqueue(tx, payload={"a": 2}),
        enqueue(tx, payload={"a": 1}),
    )
    spec_hash = status(tx, one)["spec_hash"]

    assert [row["task_id"] for row in _listed(tx, spec_hash)] == [other, one]
    assert [row["task_id"] for row in _listed(tx, spec_hash.upper(), type_prefix="default.")] == [other, one]
    assert _listed(tx, spec_hash, status="succeeded") == []
    with refused(tx, "QF400", "spec_hash", "64 hexadecimal digits"):
        _listed(tx, "abc")


def test_a_replay_is_a_new_task_of_the_same_spec_that_names_the_first(tx: Connection) -> None:
    first = enqueue(tx, payload={"a": 1}, priority=7, max_attempts=9, metadata={"m": 1}, idempotency_key="k")
    end(tx, claim_one(tx))

    again = value(tx, "select queues.replay(%s, 'to see')", [first])

    old, new = status(tx, first), status(tx, again)
    assert (new["spec_hash"], new["priority"], new["max_attempts"]) == (old["spec_hash"], 7, 9)
    assert (new["status"], new["idempotency_key"]) == ("pending", None)
    assert new["metadata"] == {"m": 1, "replay_of": str(first), "replay_reason": "to see"}
    with refused(tx, "QF404"):
        value(tx, "select queues.replay(gen_random_uuid())")


def test_a_replay_keeps_every_option_that_bounds_a_run(tx: Connection) -> None:
    options: dict[str, Any] = {
        "queue": "slow",
        "priority": 3,
        "max_attempts": 2,
        "timeout": "7 seconds",
        "lease": "9 seconds",
        "executor": "process",
        "concurrency_key": "customer-7",
    }
    first = enqueue(tx, **options)
    again = value(tx, "select queues.replay(%s)", [first])

    asked = (
        f"select {', '.join(options)}, type, payload, spec_hash from queues.task_status where task_id = %s"
    )
    (old,), (new,) = rows(tx, asked, [first]), rows(tx, asked, [again])
    assert new == old


def test_two_replays_of_a_concurrency_key_do_not_run_at_once(tx: Connection) -> None:
    first = enqueue(tx, concurrency_key="customer-7")
    end(tx, claim_one(tx))
    for _ in range(2):
        value(tx, "select queues.replay(%s)", [first])

    (running,) = claim(tx, max_tasks=10)
    assert claim(tx, max_tasks=10) == []
    end(tx, running)
    assert len(claim(tx, max_tasks=10)) == 1


def test_what_a_worker_ran_with_outlives_it(tx: Connection) -> None:
    tx.execute("select queues.register_worker('w1')")
    tx.execute("""select queues.record_environment('w1', '{"python": "3.11"}')""")
    tx.execute("""select queues.record_environment('w1', '{"python": "3.12"}')""")
    tx.execute("select queues.retire_worker('w1')")

    assert rows(tx, "select worker_id, environment from queues.provenance") == [
        {"worker_id": "w1", "environment": {"python": "3.11"}}
    ]
    with refused(tx, "QF400", "environment must be an object"):
        tx.execute("select queues.record_environment('w2', '[]')")
