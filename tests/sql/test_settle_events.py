"""queues.settle_events: which reports count, when an event is tried again, and when it dies."""

from datetime import timedelta
from typing import Any

import pytest

from support.clock import NOON, Clock
from support.engine import Connection, answer, value
from support.outbox import claim_events, deliveries, emit_changes, ids, outbox_status, settle, subscribe


def test_a_late_report_is_heard_while_nobody_else_has_claimed(
    tx: Connection, subscription: int, clock: Clock
) -> None:
    emit_changes(tx, "a")
    held = claim_events(tx, subscription)
    clock.advance(3600)

    assert settle(tx, subscription, held) == ["accepted"]


def test_a_report_needs_the_token_and_the_name(tx: Connection, subscription: int) -> None:
    emit_changes(tx, "a")
    (held,) = claim_events(tx, subscription)

    assert settle(tx, subscription, [held], dispatcher_id="d2") == ["lost"]
    assert settle(tx, subscription, [held | {"token": held["token"] + 1}]) == ["lost"]
    assert settle(tx, subscription, [held], status="nonsense") == ["lost"]
    assert settle(tx, subscription + 1, [held]) == ["lost"]
    assert settle(tx, subscription, [held]) == ["accepted"]


@pytest.mark.parametrize("attempt", [1, 2, 5, 12, 13, 19])
def test_a_failed_event_waits_twice_as_long_each_time_up_to_an_hour_and_a_half(
    tx: Connection, subscription: int, clock: Clock, attempt: int
) -> None:
    emit_changes(tx, "a")
    tx.execute("update queues.delivery set attempt = %s", [attempt - 1])
    settle(tx, subscription, claim_events(tx, subscription), "failed")

    waits = value(tx, "select extract(epoch from due_at - queues.clock()) from queues.delivery")

    raw = min(3600, 2 ** (attempt - 1))
    assert raw <= waits <= raw * 1.5


def test_a_receiver_may_say_how_long_to_wait(tx: Connection, subscription: int) -> None:
    (event_id,) = emit_changes(tx, "a")
    settle(tx, subscription, claim_events(tx, subscription), "failed", delay=120)

    due = value(tx, "select due_at from queues.delivery_status where event_id = %s", [event_id])
    assert due == NOON + timedelta(seconds=120)


@pytest.mark.parametrize("delay", [-5, 1e9, "Infinity", "NaN"])
def test_an_absurd_wait_is_not_believed(tx: Connection, subscription: int, delay: Any) -> None:
    emit_changes(tx, "a")
    settle(tx, subscription, claim_events(tx, subscription), "failed", delay=delay)

    assert value(tx, "select due_at - queues.clock() < '2 seconds' from queues.delivery") is True


def test_an_event_dies_when_its_attempts_are_used_up_and_the_next_one_goes(
    tx: Connection, clock: Clock
) -> None:
    subscription = subscribe(tx, "two", max_attempts=2)
    a1, a2 = emit_changes(tx, "a", "a")
    for _ in range(2):
        settle(tx, subscription, claim_events(tx, subscription, max_events=1), "failed", error="no")
        clock.advance(10)

    assert deliveries(tx, a1) == {"two": "dead"}
    assert (outbox_status(tx, "two")["dead"], outbox_status(tx, "two")["last_error"]) == (1, "no")
    assert ids(claim_events(tx, subscription)) == [a2]


def test_a_rejected_event_dies_at_once_and_does_not_count_for_the_breaker(
    tx: Connection, subscription: int
) -> None:
    events = emit_changes(tx, *"abcdef")
    settle(tx, subscription, claim_events(tx, subscription), "rejected", error="too large")

    assert outbox_status(tx)["dead"] == len(events)
    assert outbox_status(tx)["breaker"] == "closed"


def test_an_event_that_kills_its_dispatchers_dies_too(tx: Connection, clock: Clock) -> None:
    subscription = subscribe(tx, "two", max_attempts=2)
    a1, a2 = emit_changes(tx, "a", "a")
    for _ in range(2):
        assert ids(claim_events(tx, subscription)) == [a1, a2]
        clock.advance(61)

    assert claim_events(tx, subscription) == []

    assert deliveries(tx, a1) == {"two": "dead"}
    assert [(e["event_id"], e["attempt"]) for e in claim_events(tx, subscription)] == [(a2, 1)]


def test_a_released_event_has_used_no_attempt(tx: Connection, subscription: int) -> None:
    emit_changes(tx, "a", "a")
    held = claim_events(tx, subscription)

    assert settle(tx, subscription, held, "released") == ["accepted", "accepted"]
    assert [e["attempt"] for e in claim_events(tx, subscription)] == [1, 1]


def test_dead_events_get_a_fresh_set_of_attempts(tx: Connection, subscription: int) -> None:
    a1, b1, c1 = emit_changes(tx, *"abc")
    settle(tx, subscription, claim_events(tx, subscription), "rejected")

    assert answer(tx, "queues.redrive_events", {"name": "all", "event_id": b1}) == 1
    assert [(e["event_id"], e["attempt"]) for e in claim_events(tx, subscription)] == [(b1, 1)]
    assert answer(tx, "queues.redrive_events", {"name": "all", "max_events": 1}) == 1
    assert answer(tx, "queues.redrive_events", {"name": "all"}) == 1
    assert answer(tx, "queues.redrive_events", {"name": "all"}) == 0
    assert set(ids(claim_events(tx, subscription))) == {a1, c1}
