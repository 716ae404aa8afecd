"""Idempotency keys: one task per type and key, however often it is enqueued."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

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
    refused,
    status,
)
from support.invariant import assert_invariant
from support.sessions import at_once, in_background, wait_until_blocked


def test_the_same_key_and_spec_is_the_same_task(tx: Connection) -> None:
    first = enqueue(tx, payload={"a": 1, "b": 2}, idempotency_key="k")
    before = counts(tx)

    assert enqueue(tx, payload={"b": 2, "a": 1}, idempotency_key="k") == first
    assert counts(tx) == before


def test_a_batch_says_which_of_its_tasks_are_new(tx: Connection) -> None:
    first = enqueue(tx, "a.b", idempotency_key="old")

    answers = enqueue_many(
        tx,
        [
            {"type": "a.b", "idempotency_key": "new"},
            {"type": "a.b", "idempotency_key": "old"},
            {"type": "a.b"},
        ],
    )

    assert [answer["created"] for answer in answers] == [True, False, True]
    assert answers[1]["task_id"] == first


def test_a_repeated_batch_gives_the_same_ids_and_creates_nothing(tx: Connection) -> None:
    batch = [{"type": "a.b", "payload": {"n": n}, "idempotency_key": str(n)} for n in range(20)]
    first = enqueue_many(tx, batch)
    before = counts(tx)

    again = enqueue_many(tx, list(reversed(batch)))

    assert [answer["task_id"] for answer in reversed(again)] == [answer["task_id"] for answer in first]
    assert not any(answer["created"] for answer in again)
    assert counts(tx) == before


def test_duplicates_within_a_batch_are_one_task(tx: Connection) -> None:
    answers = enqueue_many(tx, [{"type": "a.b", "idempotency_key": "k"}] * 3 + [{"type": "a.b"}])

    assert len({answer["task_id"] for answer in answers}) == 2
    assert [answer["created"] for answer in answers] == [True, False, False, True]


def test_the_same_key_of_another_type_is_another_task(tx: Connection) -> None:
    assert enqueue(tx, "a.b", idempotency_key="k") != enqueue(tx, "a.c", idempotency_key="k")


def test_limits_and_times_may_differ_under_the_same_key(tx: Connection) -> None:
    first = enqueue(tx, idempotency_key="k")

    assert enqueue(tx, idempotency_key="k", priority=9, max_attempts=7, queue="elsewhere") == first
    assert status(tx, first)["priority"] == 0


@pytest.mark.parametrize("other", [{"payload": {"n": 2}}, {"executor": "process"}])
def test_the_same_key_may_not_mean_two_things(tx: Connection, other: dict[str, Any]) -> None:
    first = enqueue(tx, payload={"n": 1}, idempotency_key="k")

    with refused(tx, "QF409", "idempotency_key", '"k"', str(first)):
        enqueue(tx, **{"payload": {"n": 1}, "idempotency_key": "k", **other})


def test_a_conflict_refuses_the_whole_batch(tx: Connection) -> None:
    enqueue(tx, "a.b", payload={"n": 1}, idempotency_key="k")

    with refused(tx, "QF409", '"k"'):
        enqueue_many(
            tx,
            [
                {"type": "a.b", "idempotency_key": "fine"},
                {"type": "a.b", "payload": {"n": 2}, "idempotency_key": "k"},
            ],
        )


def test_a_conflict_within_a_batch_refuses_it(tx: Connection) -> None:
    with refused(tx, "QF409", '"k"'):
        enqueue_many(tx, [{"type": "a.b", "payload": {"n": n}, "idempotency_key": "k"} for n in (1, 2)])


@pytest.mark.parametrize("ending", ["succeeded", "failed", "cancelled"])
def test_a_task_that_ended_still_holds_its_key(tx: Connection, ending: str) -> None:
    first = enqueue(tx, idempotency_key="k")
    end(tx, claim_one(tx), ending)

    assert enqueue(tx, idempotency_key="k") == first
    assert status(tx, first)["status"] == ending


def test_deleting_a_task_frees_its_key(tx: Connection) -> None:
    first = enqueue(tx, payload={"n": 1}, idempotency_key="k")
    act(tx, "delete_task", first)

    second = enqueue(tx, payload={"n": 2}, idempotency_key="k")

    assert second != first
    assert enqueue(tx, payload={"n": 2}, idempotency_key="k") == second


def test_a_key_keeps_its_letters_as_they_are(tx: Connection) -> None:
    keys = ["k", "K", " k", "k ", "é", "e\u0301", "k%", "k_", "'; drop table queues.task; --"]

    assert len({enqueue(tx, idempotency_key=key) for key in keys}) == len(keys)


def test_fifty_connections_at_once_get_one_task(db: Database) -> None:
    clients = [db.connect("holdfast_client") for _ in range(50)]

    def ask(client: Connection) -> UUID:
        return enqueue(client, payload={"n": 1}, idempotency_key="k")

    ids = at_once(ask, clients)

    assert len(set(ids)) == 1
    assert len(claim(db.connect("holdfast_worker"), max_tasks=100)) == 1
    assert_invariant(db.connect())


def test_batches_that_cross_share_their_tasks_without_a_deadlock(db: Database) -> None:
    batch = [{"type": "a.b", "idempotency_key": str(n)} for n in range(200)]
    batches = [batch, batch[::-1], batch[100:] + batch[:100], batch[::2] + batch[1::2]] * 2
    clients = [db.connect("holdfast_client") for _ in batches]

    def ask(given: tuple[Connection, Any]) -> set[UUID]:
        return {answer["task_id"] for answer in enqueue_many(*given)}

    answers = at_once(ask, list(zip(clients, batches, strict=True)))

    assert all(ids == answers[0] for ids in answers)
    assert counts(db.connect())["task"] == 200
    assert_invariant(db.connect())


def test_a_batch_asks_for_its_keys_in_their_order_and_not_in_its_own(db: Database) -> None:
    gate = db.connect("holdfast_client", autocommit=False)
    first = enqueue(gate, idempotency_key="a")
    batch, other = db.connect("holdfast_client"), db.connect("holdfast_client")
    for session in (batch, other):
        session.execute("set lock_timeout = '10s'")
    tasks = [{"type": "default.work", "idempotency_key": key} for key in ("b", "a")]

    with in_background(lambda: enqueue_many(batch, tasks)) as asking:
        wait_until_blocked(db.connect(), batch)
        second = enqueue(other, idempotency_key="b")  # which a batch that waits for "a" must not hold yet
        gate.commit()

    assert [(row["task_id"], row["created"]) for row in asking.result()] == [(second, False), (first, False)]


def test_while_the_first_is_undecided_the_others_wait_and_then_get_its_task(db: Database) -> None:
    winner, loser = db.connect("holdfast_client", autocommit=False), db.connect("holdfast_client")
    first = enqueue(winner, idempotency_key="k")

    with in_background(lambda: enqueue(loser, idempotency_key="k")) as second:
        wait_until_blocked(db.connect(), loser)
        winner.commit()

    assert second.result() == first


def test_if_the_first_rolls_back_one_of_the_others_creates_the_task(db: Database) -> None:
    winner = db.connect("holdfast_client", autocommit=False)
    losers = [db.connect("holdfast_client") for _ in range(5)]
    undone = enqueue(winner, idempotency_key="k")

    def ask(loser: Connection) -> UUID:
        return enqueue(loser, idempotency_key="k")

    with in_background(lambda: at_once(ask, losers)) as others:
        wait_until_blocked(db.connect(), *losers)
        winner.rollback()

    assert len(set(others.result())) == 1
    assert undone not in others.result()
    assert counts(db.connect())["task"] == 1
    assert_invariant(db.connect())


def test_a_conflict_is_found_also_with_a_task_that_was_undecided(db: Database) -> None:
    winner, loser = db.connect("holdfast_client", autocommit=False), db.connect("holdfast_client")
    enqueue(winner, payload={"n": 1}, idempotency_key="k")

    with in_background(lambda: enqueue(loser, payload={"n": 2}, idempotency_key="k")) as second:
        wait_until_blocked(db.connect(), loser)
        winner.commit()

    error = second.exception()
    assert isinstance(error, psycopg.Error)
    assert error.sqlstate == "QF409"
    assert counts(db.connect())["task"] == 1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_stricter_isolation_gives_the_task_or_a_serialization_failure(db: Database, level: str) -> None:
    strict, other = db.connect("holdfast_client", autocommit=False), db.connect("holdfast_client")
    strict.execute(f"set transaction isolation level {level}".encode())
    strict.execute("select from queues.task_status")  # takes its snapshot
    first = enqueue(other, idempotency_key="k")

    with pytest.raises(psycopg.errors.SerializationFailure):
        enqueue(strict, idempotency_key="k")
    strict.rollback()
    assert enqueue(strict, idempotency_key="k") == first
