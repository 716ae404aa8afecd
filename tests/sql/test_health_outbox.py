"""What queues.health says of the outbox: events that wait, and events that were given up."""

import pytest

from support.clock import Clock
from support.engine import Connection, call
from support.health import level, line
from support.outbox import emit, subscribe


@pytest.mark.parametrize(("waited", "expected"), [(5, "green"), (60, "amber"), (600, "red")])
def test_events_that_wait(tx: Connection, clock: Clock, waited: float, expected: str) -> None:
    subscribe(tx, "crm")
    assert "has all its events" in line(tx, "outbox", "crm")["message"]
    emit(tx)
    clock.advance(waited)

    found = line(tx, "outbox", "crm")
    assert (found["level"], found["value"]) == (expected, waited)
    assert ("1 event waits" in found["message"], "no dispatcher" in found["message"]) == (True, True)


def test_a_paused_subscription_is_amber_however_long_its_events_wait(tx: Connection, clock: Clock) -> None:
    subscribe(tx, "crm")
    emit(tx)
    call(tx, "queues.pause_subscription", {"name": "crm", "reason": "they move"})
    clock.advance(86400)
    assert level(tx, "outbox", "crm") == "amber"


def test_a_receiver_that_fails_is_amber_at_once(tx: Connection, clock: Clock) -> None:
    subscribe(tx, "crm")
    emit(tx)
    clock.advance(1)
    tx.execute(
        """insert into queues.breaker (subscription_id, namespace, failures, openings, open_until, last_error)
           select s.subscription_id, 'shop', 5, 1, queues.clock(), 'HTTP 500' from queues.subscription s"""
    )
    found = line(tx, "outbox", "crm")
    assert (found["level"], found["error"]) == ("amber", "HTTP 500")


def test_a_full_outbox(tx: Connection, clock: Clock) -> None:
    subscribe(tx, "crm")
    tx.execute(
        """insert into queues.delivery (subscription_id, namespace, aggregate_id, event_number, event_id,
             emitted_at, due_at, attempt, counted)
           select s.subscription_id, 'shop', n, n, gen_random_uuid(), queues.clock(), queues.clock(), 0, false
           from queues.subscription s, generate_series(1, 10001) n"""
    )

    found = line(tx, "outbox", "crm")
    assert (found["level"], "10000 or more events wait" in found["message"]) == ("red", True)


def test_events_that_were_given_up(tx: Connection, clock: Clock) -> None:
    subscribe(tx, "crm")
    tx.execute(
        """insert into queues.dead_delivery (event_id, subscription_id, died_at, attempt)
           select gen_random_uuid(), s.subscription_id, queues.clock(), 20 from queues.subscription s"""
    )

    found = line(tx, "dead_events", "crm")
    assert (found["level"], found["value"]) == ("amber", 1)
