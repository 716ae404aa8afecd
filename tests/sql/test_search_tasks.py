"""The search of queues.list_tasks, and queues.watch_many: looking for many tasks at once."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from support.database import Database
from support.engine import Connection, call, claim_one, end, enqueue, refused, value


def found(conn: Connection, words: Any, **more: Any) -> list[UUID]:
    return [row["task_id"] for row in call(conn, "queues.list_tasks", {"words": words, **more})]


def test_a_task_is_found_by_id_key_type_and_error(tx: Connection) -> None:
    task_id = enqueue(tx, "sought.one", idempotency_key="order 7")
    enqueue(tx, "other.one")
    end(tx, claim_one(tx, queues=["sought"]), "failed", error={"kind": "Boom", "message": "the Disk is full"})
    for words in (
        str(task_id),
        str(task_id).replace("-", ""),
        "order 7",
        "sought.",
        "ught.o",
        "SOUGHT",
        "disk is",
    ):
        assert found(tx, words) == [task_id], words
    assert found(tx, "nothing like it") == []


def test_what_would_be_a_pattern_is_plain_text(tx: Connection) -> None:
    enqueue(tx, "sought.one", idempotency_key="a%b")
    end(tx, claim_one(tx, queues=["sought"]), "failed", error={"message": "100%_sure"})
    assert found(tx, "%") == found(tx, "0%_s") != []
    assert found(tx, "a_b") == []


def test_the_newest_come_first_and_no_more_than_asked(tx: Connection) -> None:
    ids = [enqueue(tx, "sought.many") for _ in range(5)]
    assert found(tx, "sought", max_tasks=2) == ids[:2:-1]


def test_a_client_finds_its_own_tasks_only(db: Database) -> None:
    admin, client = db.connect(), db.connect("holdfast_client")
    foreign, own = enqueue(admin, "mine.one", idempotency_key="k1"), enqueue(client, "mine.two")
    assert found(client, "mine.") == [own]
    assert found(client, str(foreign)) == found(client, "k1") == []
    assert found(db.connect("holdfast_reader"), "mine.") == [own, foreign]


@pytest.mark.parametrize("arguments", [{"words": ""}, {"words": "x" * 501}])
def test_words_have_their_bounds(tx: Connection, arguments: dict[str, Any]) -> None:
    with refused(tx, "QF400", "words"):
        found(tx, **arguments)


def test_many_tasks_are_watched_at_once(tx: Connection) -> None:
    waiting, ended = enqueue(tx, "watched.later", priority=-1), enqueue(tx, "watched.now")
    end(tx, claim_one(tx, queues=["watched"]))
    answers = call(tx, "queues.watch_many", {"task_ids": [waiting, ended, uuid4()]})
    assert {row["task_id"]: row["status"] for row in answers} == {waiting: "pending", ended: "succeeded"}
    assert value(tx, "select array_agg(task_id) from queues.waiter") == [waiting]


def test_a_client_watches_its_own_only(db: Database) -> None:
    foreign = enqueue(db.connect(), "watched.foreign")
    assert call(db.connect("holdfast_client"), "queues.watch_many", {"task_ids": [foreign]}) == []


def test_a_watch_of_many_has_its_bounds(tx: Connection) -> None:
    with refused(tx, "QF400", "task_ids"):
        call(tx, "queues.watch_many", {"task_ids": [uuid4()] * 10001})
    with refused(tx, "QF400", "ttl"):
        call(tx, "queues.watch_many", {"task_ids": [], "ttl": "2 hours"})


def test_a_task_is_found_by_a_path_into_its_payload(tx: Connection) -> None:
    ids = [enqueue(tx, payload={"order": {"number": n}, "tags": ["a", f"t{n}"]}) for n in range(3)]
    assert found(tx, None, payload_path="$.order.number ? (@ >= 1)") == [ids[2], ids[1]]
    assert found(tx, None, payload_path='$.tags[*] ? (@ == "t0")') == [ids[0]]
    assert found(tx, None, payload_path="strict $.missing") == []


@pytest.mark.parametrize("path", ["$.a ?", "", "x" * 1001, "$.a ? (@ == 1"])
def test_a_path_that_is_none_is_refused(tx: Connection, path: str) -> None:
    with refused(tx, "QF400", "payload_path"):
        found(tx, None, payload_path=path)


def test_error_messages_can_be_left_out_of_a_search(tx: Connection) -> None:
    enqueue(tx, "sought.one")
    end(tx, claim_one(tx, queues=["sought"]), "failed", error={"message": "the card 4242 was declined"})
    assert len(found(tx, "4242")) == 1
    assert found(tx, "4242", search_errors=False) == []


def test_a_key_is_found_however_old_its_task_is(db: Database) -> None:
    tx = db.connect()
    old = enqueue(tx, "sought.one", idempotency_key="order 7")
    tx.execute(
        """insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue,
             executor, enqueued_by, namespace, payload)
           select ('ffffffff-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, queues.clock(),
             queues.clock(), 0, 3, 'other.work', 'other', 'python', 'somebody', 'somebody', '{}'
           from generate_series(1, 10001) i"""
    )
    assert found(tx, "order 7") == found(tx, str(old)) == [old]
    assert found(tx, "sought") == []


def test_statuses_are_counted(tx: Connection) -> None:
    for n in range(3):
        enqueue(tx, f"counted.{n}")
    end(tx, claim_one(tx, queues=["counted"]), "failed")

    def counts(**filters: Any) -> dict[str, int]:
        return {
            row["status"]: row["tasks"] for row in call(tx, "queues.count_tasks", filters) if row["tasks"]
        }

    assert counts() == {"pending": 2, "failed": 1}
    assert counts(type_prefix="counted.1") == {"pending": 1}
    assert counts(words="counted.0") == {"failed": 1}


def test_a_client_counts_its_own_tasks_only(db: Database) -> None:
    client = db.connect("holdfast_client")
    enqueue(db.connect())
    enqueue(client)
    assert [row["tasks"] for row in call(client, "queues.count_tasks", {})] == [1]
