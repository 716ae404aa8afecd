"""queues.register_types: what workers declare holds where a task says nothing itself."""

from datetime import timedelta
from typing import Any

import pytest

from support.engine import Connection, answer, claim_one, enqueue, enqueue_many, refused, rows, status, value

CHARGE = {"type": "billing.charge", "queue": "slow", "priority": 5, "max_attempts": 9, "lease": 120}
DECLARED = ("slow", 5, 9, timedelta(minutes=2))


def register(tx: Connection, *types: Any) -> int:
    return int(answer(tx, "queues.register_types", {"types": list(types)}))


def options(tx: Connection, task_id: Any) -> tuple[Any, ...]:
    task = status(tx, task_id)
    return task["queue"], task["priority"], task["max_attempts"], task["lease"]


def test_a_task_that_says_nothing_gets_what_is_declared(tx: Connection) -> None:
    register(tx, CHARGE, {"type": "mail.send", "max_attempts": 7})
    (first, second) = enqueue_many(tx, [{"type": "billing.charge"}, {"type": "mail.send"}])
    (one,) = enqueue_many(tx, [{"type": "billing.charge", "priority": None, "max_attempts": None}])
    for task_id in (enqueue(tx, "billing.charge"), first["task_id"], one["task_id"]):
        assert options(tx, task_id) == DECLARED
    assert options(tx, second["task_id"]) == ("mail", 0, 7, None)
    assert options(tx, enqueue(tx, "billing.other")) == ("billing", 0, 3, None)


def test_a_task_of_a_schedule_gets_what_is_declared(tx: Connection) -> None:
    register(tx, CHARGE)
    added = {"name": "nightly", "type": "billing.charge", "every": timedelta(hours=1)}
    answer(tx, "queues.add_schedule", added)
    task_id = answer(tx, "queues.run_schedule", {"name": "nightly"})
    assert options(tx, task_id) == DECLARED


def test_what_a_task_says_itself_goes_first(tx: Connection) -> None:
    register(tx, CHARGE)
    own = {"queue": "own", "priority": 0, "max_attempts": 3}
    alone = enqueue(tx, "billing.charge", lease=timedelta(seconds=5), **own)
    (batched,) = enqueue_many(tx, [{"type": "billing.charge", "lease": 5, **own}])
    for task_id in (alone, batched["task_id"]):
        assert options(tx, task_id) == ("own", 0, 3, timedelta(seconds=5))


def test_what_is_declared_holds_for_one_option_at_a_time(tx: Connection) -> None:
    register(tx, CHARGE)
    assert options(tx, enqueue(tx, "billing.charge", max_attempts=2)) == ("slow", 5, 2, timedelta(minutes=2))
    (batched,) = enqueue_many(tx, [{"type": "billing.charge", "queue": "own"}])
    assert options(tx, batched["task_id"]) == ("own", 5, 9, timedelta(minutes=2))


def test_a_batch_keeps_its_order_whatever_is_declared(tx: Connection) -> None:
    register(tx, *({"type": f"kind.of{n}", "max_attempts": n + 1} for n in range(0, 50, 2)))
    made = enqueue_many(tx, [{"type": f"kind.of{n % 50}", "payload": n} for n in range(200)])
    found = [status(tx, one["task_id"]) for one in made]
    assert [task["payload"] for task in found] == list(range(200))
    assert [task["max_attempts"] for task in found[:4]] == [1, 3, 3, 3]


def test_the_lease_that_is_declared_is_the_one_that_is_claimed(tx: Connection) -> None:
    register(tx, CHARGE)
    enqueue(tx, "billing.charge")
    claim_one(tx, queues=["slow"])
    assert value(tx, "select lease_until - claimed_at from queues.lease") == timedelta(minutes=2)


def test_a_key_stands_for_the_same_task_whatever_is_declared_in_between(tx: Connection) -> None:
    first = enqueue(tx, "billing.charge", idempotency_key="k")
    register(tx, CHARGE)
    assert enqueue(tx, "billing.charge", idempotency_key="k") == first


def test_the_newest_declaration_counts_and_no_task_that_exists_changes(tx: Connection) -> None:
    assert register(tx, CHARGE) == 1
    before = enqueue(tx, "billing.charge")
    assert register(tx, CHARGE) == 0
    assert register(tx, {"type": "billing.charge"}, {**CHARGE, "max_attempts": 4}) == 1
    assert options(tx, before) == DECLARED
    assert options(tx, enqueue(tx, "billing.charge"))[2] == 4
    (shown,) = rows(tx, "select * from queues.registered_type")
    assert (shown["type"], shown["max_attempts"]) == ("billing.charge", 4)
    assert shown["registered_by"] == value(tx, "select session_user::text")


@pytest.mark.parametrize(
    ("declared", "part"),
    [
        ({"type": "a..b"}, "types[1].type"),
        ({"type": "a", "queue": "a b"}, "types[1].queue"),
        ({"type": "a", "max_attempts": 0}, "types[1].max_attempts"),
        ({"type": "a", "max_attempts": "x"}, "types[1].max_attempts"),
        ({"type": "a", "priority": 1e12}, "types[1].priority"),
        ({"type": "a", "lease": 0.5}, "types[1].lease"),
        ({"type": "a", "timeout": 0}, "types[1].timeout"),
        ({"type": "a", "executor": "nonsense"}, "types[1].executor"),
        ({"type": "a", "schema": "nonsense"}, "types[1].schema is not an object"),
        ({"type": "a", "schema": {"x": "x" * 70_000}}, "of at most 65536 bytes"),
        ({"type": "a", "colour": "red"}, '"colour" is unknown'),
        ({"queue": "a"}, "types[1].type"),
        ("a", "types[1] must be an object"),
    ],
)
def test_what_cannot_hold_for_a_task_is_refused(tx: Connection, declared: Any, part: str) -> None:
    with refused(tx, "QF400", part):
        register(tx, CHARGE, declared)
    assert rows(tx, "select * from queues.registered_type") == []


def test_the_timeout_the_executor_and_the_schema_are_shown(tx: Connection) -> None:
    schema = {"arguments": {"type": "object"}, "result": {}}
    register(tx, {**CHARGE, "timeout": 9, "executor": "process", "schema": schema}, {"type": "mail.send"})
    charge, mail = rows(tx, "select * from queues.registered_type order by type")
    assert (charge["timeout"], charge["executor"], charge["schema"]) == (
        timedelta(seconds=9),
        "process",
        schema,
    )
    assert (mail["timeout"], mail["executor"], mail["schema"]) == (None, "python", None)
    assert register(tx, {**CHARGE, "timeout": 9, "executor": "process", "schema": schema}) == 0
    assert register(tx, {**CHARGE, "timeout": 9, "executor": "process"}) == 1


@pytest.mark.parametrize("executor", ["db_function", "email", "sms"])
def test_no_declaration_gives_a_task_the_rights_of_the_database(tx: Connection, executor: str) -> None:
    with refused(tx, "QF403", f"types[0].executor {executor}"):
        register(tx, {"type": "a.b", "executor": executor})


def test_a_declaration_does_not_change_the_executor_that_a_task_asks_for(tx: Connection) -> None:
    register(tx, {"type": "a.b", "executor": "process"})
    assert status(tx, enqueue(tx, "a.b", executor="python"))["executor"] == "python"  # the worker decides


def test_the_number_of_types_is_bounded(tx: Connection) -> None:
    register(tx, *({"type": f"kind.of{n}"} for n in range(10_000)))
    with refused(tx, "QF400", "more than 10000 types"):
        register(tx, CHARGE)


def test_queues_that_nobody_serves_are_told_to_workers(tx: Connection) -> None:
    answer(tx, "queues.register_worker", {"worker_id": "w1", "queues": ["billing"]})
    enqueue(tx, "billing.charge")
    enqueue(tx, "comms.send")
    (found,) = rows(tx, "select * from queues.unserved_queues()")
    assert (found["subject"], found["code"], found["facts"]) == ("comms", "unserved", {"type": "comms.send"})
