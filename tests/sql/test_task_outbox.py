"""What the engine itself emits: about tasks that end or are tried again, and only what somebody asks for."""

import json
from typing import Any
from uuid import UUID

import jsonschema_rs
import pytest

from support.clock import Clock
from support.database import Database
from support.documents import REFERENCE, code, sections
from support.engine import (
    Connection,
    Row,
    act,
    answer,
    call,
    claim,
    claim_one,
    end,
    enqueue,
    finish,
    held,
    rows,
    sweep,
    value,
)
from support.outbox import claim_events, count_events, deliveries, subscribe

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SCHEMAS = {
    title: json.loads(code(text, "json")[0])
    for title, text in sections(REFERENCE / "events.md").items()
    if code(text, "json")
}


def _events(tx: Connection) -> list[Row]:
    return rows(tx, "select * from queues.event_status order by event_number")


def _types(tx: Connection) -> list[str]:
    return [event["event_type"] for event in _events(tx)]


def _finish_one(tx: Connection, status: str, **more: Any) -> UUID:
    task_id = enqueue(tx, "billing.charge", max_attempts=more.pop("max_attempts", 3))
    assert end(tx, claim_one(tx, queues=["billing"]), status, **more) == "accepted"
    return task_id


def _lose_worker(tx: Connection, clock: Clock) -> list[UUID]:
    """One that held a task which is tried again, and one which is not."""
    call(tx, "queues.register_worker", {"worker_id": "gone", "hostname": "h"})
    tasks = [enqueue(tx, "lost.task", max_attempts=n) for n in (1, 2)]
    claim(tx, "gone", queues=["lost"], max_tasks=2, lease="1 hour")
    for _ in range(16):  # after a gap, workers would have two heartbeats to come back
        clock.advance(4)
        sweep(tx)
    call(tx, "queues.recover_workers", {})
    return tasks


def test_every_type_has_a_schema_and_every_schema_a_type(tx: Connection) -> None:
    emitted = value(tx, "select queues.engine_event_types()")

    assert SCHEMAS.keys() == {*emitted, "subscription.test"}


def test_data_is_as_its_schema_says(tx: Connection, clock: Clock) -> None:
    subscription = subscribe(tx, "all", "task.*", "worker.lost")
    error = {"kind": "handler_error", "message": "no"}
    _finish_one(tx, "succeeded")
    _finish_one(tx, "failed", error={"kind": "no_handler_registered", "message": "no handler"})
    _finish_one(tx, "retry", error=error)
    _finish_one(tx, "retry", error=error, max_attempts=1)
    _finish_one(tx, "cancelled")
    _finish_one(tx, "cancelled", error=error)
    act(tx, "cancel", enqueue(tx, idempotency_key="k"), reason="not needed")
    enqueue(tx, max_attempts=1)
    claim(tx)
    clock.advance(31)
    sweep(tx)
    answer(tx, "queues.test_subscription", {"name": "all"})
    _lose_worker(tx, clock)

    events = claim_events(tx, subscription)

    assert {event["event_type"] for event in events} == SCHEMAS.keys()
    for event in events:
        strict = SCHEMAS[event["event_type"]] | {"additionalProperties": False}
        jsonschema_rs.validate(strict, event["data"], validate_formats=True)


@pytest.mark.parametrize(
    ("status", "more", "expected"),
    [
        ("succeeded", {}, ["task.succeeded"]),
        ("failed", {}, ["task.failed"]),
        ("failed", {"error": {"kind": "no_handler_registered"}}, ["task.no_handler", "task.failed"]),
        ("cancelled", {}, ["task.cancelled"]),
        ("retry", {}, ["task.retrying"]),
        ("retry", {"max_attempts": 1}, ["task.dead_letter"]),
        ("snooze", {}, []),
    ],
)
def test_each_way_to_finish_has_its_event(
    tx: Connection, status: str, more: dict[str, Any], expected: list[str]
) -> None:
    subscribe(tx)

    task_id = _finish_one(tx, status, **more)

    assert _types(tx) == expected
    for event in _events(tx):
        assert (event["task_id"], event["aggregate_id"]) == (task_id, str(task_id))


def test_what_is_snoozed_after_a_retry_is_not_told_of_again(tx: Connection, clock: Clock) -> None:
    subscribe(tx)
    _finish_one(tx, "retry")
    clock.advance(60)

    end(tx, claim_one(tx, queues=["billing"]), "snooze")

    assert _types(tx) == ["task.retrying"]


def test_a_cancelled_task_is_told_of_whoever_cancelled_it(tx: Connection) -> None:
    subscribe(tx)
    waiting = enqueue(tx)
    act(tx, "cancel", waiting, reason="not needed")
    act(tx, "cancel", waiting)

    (event,) = _events(tx)
    assert (event["event_type"], event["data"]["reason"]) == ("task.cancelled", "not needed")


def test_a_task_that_died_with_its_worker_is_told_of(tx: Connection, clock: Clock) -> None:
    subscribe(tx, "dead", "task.dead_letter")
    task_id = enqueue(tx, max_attempts=1)
    claim(tx)
    clock.advance(31)
    sweep(tx)

    (event,) = _events(tx)
    assert event["data"]["task_id"] == str(task_id)
    assert event["data"]["error"]["kind"] == "lease_expired"


def test_a_lost_worker_is_told_of_once_with_what_it_held(tx: Connection, clock: Clock) -> None:
    subscribe(tx)
    dead, tried_again = _lose_worker(tx, clock)
    call(tx, "queues.recover_workers", {})

    found = {event["event_type"]: event for event in _events(tx)}
    assert _types(tx) == ["task.dead_letter", "task.retrying", "worker.lost"]
    assert found["task.dead_letter"]["task_id"] == dead
    assert found["task.retrying"]["task_id"] == tried_again
    lost = found["worker.lost"]
    assert (lost["aggregate_id"], lost["data"]["recovered"], lost["data"]["dead"]) == ("gone", 1, 1)


def test_a_lost_worker_is_told_of_only_if_somebody_asks(tx: Connection, clock: Clock) -> None:
    subscribe(tx, "tasks", "task.*")
    _lose_worker(tx, clock)

    assert "worker.lost" not in _types(tx)


def test_a_task_that_goes_back_with_its_lease_is_tried_again(tx: Connection, clock: Clock) -> None:
    subscribe(tx)
    enqueue(tx)
    claim(tx)
    clock.advance(31)
    sweep(tx)

    (event,) = _events(tx)
    assert (event["event_type"], event["data"]["error"]["kind"]) == ("task.retrying", "lease_expired")


def test_a_repeated_report_tells_nothing_again(tx: Connection) -> None:
    subscribe(tx)
    enqueue(tx)
    task = claim_one(tx)
    results = held(task, status="succeeded")

    assert [finish(tx, results), finish(tx, results)] == [["accepted"], ["already_done"]]
    assert _types(tx) == ["task.succeeded"]


def test_a_task_that_ends_twice_is_told_of_twice(tx: Connection) -> None:
    subscribe(tx, "failed", "task.failed")
    task_id = _finish_one(tx, "failed")
    act(tx, "retry", task_id)
    end(tx, claim_one(tx, queues=["billing"]), "failed")

    first, second = _events(tx)
    assert first["event_id"] != second["event_id"]


def test_only_what_is_asked_for_is_written(tx: Connection) -> None:
    subscribe(tx, "dead", "task.dead_letter")
    subscribe(tx, "billing", "task.failed", type_prefixes=["billing."])
    subscribe(tx, "media", "task.failed", type_prefixes=["media."])
    _finish_one(tx, "succeeded")
    task_id = _finish_one(tx, "failed")

    (event,) = _events(tx)
    assert event["task_id"] == task_id
    assert deliveries(tx, event["event_id"]) == {"billing": "waiting"}


@pytest.mark.parametrize("asked", [(), ("order.*",), ("subscription.test",)])
def test_with_nobody_who_asks_for_tasks_nothing_is_written(tx: Connection, asked: tuple[str, ...]) -> None:
    if asked:
        subscribe(tx, "a", *asked)
    number = "select last_value from queues.event_number"
    before = value(tx, number)
    _finish_one(tx, "succeeded")
    _finish_one(tx, "failed")
    act(tx, "cancel", enqueue(tx))

    assert count_events(tx) == 0
    assert value(tx, number) == before


def test_a_removed_subscription_makes_the_engine_write_nothing(tx: Connection) -> None:
    subscribe(tx)
    answer(tx, "queues.unsubscribe", {"name": "all"})

    _finish_one(tx, "succeeded")

    assert count_events(tx) == 0


def test_a_batch_is_told_of_in_its_order(tx: Connection) -> None:
    subscribe(tx)
    for n in range(10):
        enqueue(tx, payload={"n": n})
    tasks = claim(tx, max_tasks=10)[::-1]
    finish(tx, held(*tasks, status="succeeded"))

    assert [event["task_id"] for event in _events(tx)] == [task["task_id"] for task in tasks]


def test_the_trace_of_who_enqueued_goes_on(tx: Connection) -> None:
    subscribe(tx)
    for traceparent in (TRACE, "nonsense"):
        enqueue(tx, metadata={"traceparent": traceparent})
        end(tx, claim_one(tx))

    assert [event["traceparent"] for event in _events(tx)] == [TRACE, None]


def test_what_a_worker_lost_tells_nothing(tx: Connection, clock: Clock) -> None:
    subscribe(tx, "a", "task.succeeded")
    enqueue(tx)
    late = claim_one(tx)
    clock.advance(31)
    sweep(tx)

    assert end(tx, late) == "lost"
    assert _types(tx) == []


def test_a_client_sees_the_events_of_its_tasks_and_those_it_emitted(db: Database) -> None:
    admin, mine, other = db.connect(), db.connect("holdfast_client"), db.connect("holdfast_process")
    subscribe(admin)
    task_id = enqueue(mine)
    end(admin, claim_one(admin))
    answer(mine, "queues.emit", {"event_type": "order.created"})

    assert _types(mine) == ["task.succeeded", "order.created"]
    assert _types(other) == []
    assert rows(other, "select * from queues.delivery_status") == []
    assert rows(other, "select * from queues.tail_events()") == []
    (shown,) = rows(mine, "select * from queues.delivery_status where task_id = %s", [task_id])
    assert (shown["subscription"], shown["status"]) == ("all", "waiting")
