"""queues.claim_events: the order of events, leases, and dispatchers that claim at the same time."""

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, Row, call, refused
from support.interleaving import REFUSED, Session
from support.outbox import claim_events, deliveries, emit, emit_changes, ids, settle, subscribe


def test_events_of_an_aggregate_are_claimed_together_and_in_order(tx: Connection, subscription: int) -> None:
    a1, b1, a2, a3 = emit_changes(tx, "a", "b", "a", "a")

    assert ids(claim_events(tx, subscription)) == [a1, a2, a3, b1]


def test_what_follows_a_claimed_event_waits_for_it(tx: Connection, subscription: int) -> None:
    a1, a2 = emit_changes(tx, "a", "a")

    first = claim_events(tx, subscription, max_events=1)
    assert ids(first) == [a1]
    assert claim_events(tx, subscription, "d2") == []
    settle(tx, subscription, first)
    assert ids(claim_events(tx, subscription, "d2")) == [a2]


def test_what_follows_a_failed_event_waits_until_that_was_delivered(
    tx: Connection, subscription: int, clock: Clock
) -> None:
    a1, a2, b1 = emit_changes(tx, "a", "a", "b")
    one, two, _ = claim_events(tx, subscription)
    settle(tx, subscription, [one], "failed", error="HTTP 500")
    settle(tx, subscription, [two], "released")

    assert claim_events(tx, subscription) == []
    clock.advance(2)
    retried = claim_events(tx, subscription)
    assert [(e["event_id"], e["attempt"]) for e in retried] == [(a1, 2), (a2, 1)]
    assert deliveries(tx, b1) == {"all": "in_flight"}


def test_events_without_an_aggregate_do_not_wait_for_each_other(tx: Connection, subscription: int) -> None:
    first, second = emit_changes(tx, None, None)

    assert ids(claim_events(tx, subscription, max_events=1)) == [first]
    assert ids(claim_events(tx, subscription, max_events=1)) == [second]


def test_a_claim_is_shared_out_over_aggregates_before_it_goes_deep(tx: Connection, subscription: int) -> None:
    emit_changes(tx, *["a"] * 10, *["b"] * 10, "c")

    claimed = claim_events(tx, subscription, max_events=6)

    assert [e["aggregate_id"] for e in claimed] == ["a", "a", "b", "b", "c"]


def test_a_claim_goes_on_where_the_last_one_ended_and_then_from_the_beginning(
    tx: Connection, subscription: int
) -> None:
    emit_changes(tx, "a", "b", "c", "d")

    claimed = claim_events(tx, subscription, max_events=3, after_namespace="postgres", after_aggregate="b")

    assert sorted(e["aggregate_id"] for e in claimed) == ["a", "c", "d"]
    assert [
        e["aggregate_id"]
        for e in claim_events(tx, subscription, max_events=3, after_namespace="postgres", after_aggregate="c")
    ] == ["b"]


def test_each_subscription_has_its_own_progress(tx: Connection, subscription: int) -> None:
    other = subscribe(tx, "other")
    (event_id,) = emit_changes(tx, "a")
    settle(tx, subscription, claim_events(tx, subscription))

    assert deliveries(tx, event_id) == {"all": "delivered", "other": "waiting"}
    assert ids(claim_events(tx, other)) == [event_id]


def test_what_a_killed_dispatcher_held_goes_out_again_after_its_lease(
    tx: Connection, subscription: int, clock: Clock
) -> None:
    a1, a2 = emit_changes(tx, "a", "a")
    lost = claim_events(tx, subscription, lease=timedelta(seconds=10))
    clock.advance(9)
    assert claim_events(tx, subscription, "d2") == []
    clock.advance(2)

    again = claim_events(tx, subscription, "d2")

    assert [(e["event_id"], e["attempt"]) for e in again] == [(a1, 2), (a2, 1)]
    assert settle(tx, subscription, lost) == ["lost", "lost"]
    assert settle(tx, subscription, again, dispatcher_id="d2") == ["accepted", "accepted"]
    assert settle(tx, subscription, lost) == ["already_done", "already_done"]


def test_an_event_that_was_redriven_does_not_overtake_what_is_on_its_way(
    tx: Connection, subscription: int
) -> None:
    a1, a2 = emit_changes(tx, "a", "a")
    settle(tx, subscription, claim_events(tx, subscription, max_events=1), "rejected")
    under_way = claim_events(tx, subscription)
    call(tx, "queues.redrive_events", {"name": "all"})

    assert claim_events(tx, subscription, "d2") == []
    settle(tx, subscription, under_way)
    assert ids(claim_events(tx, subscription, "d2")) == [a1]
    assert deliveries(tx, a2) == {"all": "delivered"}


def test_an_event_whose_transaction_commits_late_is_not_passed_over(db: Database) -> None:
    admin = db.connect()
    subscription = subscribe(admin)
    late = db.connect("holdfast_client", autocommit=False)
    slow = emit(late, aggregate_id="slow")
    fast = [emit(admin, aggregate_id="fast") for _ in range(3)]

    first = claim_events(admin, subscription)
    settle(admin, subscription, first)
    late.commit()

    assert ids(first) == fast
    assert ids(claim_events(admin, subscription)) == [slow]


def test_two_dispatchers_never_get_the_same_event_nor_wait_for_each_other(db: Database) -> None:
    admin = db.connect()
    subscription = subscribe(admin)
    for number in range(20):
        emit(admin, aggregate_id=f"a{number % 10}")
    one = db.connect("holdfast_dispatcher", autocommit=False)
    two = db.connect("holdfast_dispatcher", autocommit=False)
    two.execute("set lock_timeout = '5s'")

    first = claim_events(one, subscription, "d1", max_events=5)
    second = claim_events(two, subscription, "d2", max_events=100)

    assert len(first) == 5
    assert not {e["aggregate_id"] for e in first} & {e["aggregate_id"] for e in second}
    assert len(second) == 10


def _merged(one: list[str], two: list[str]) -> Iterator[list[tuple[int, str]]]:
    """Every order of the steps of two sessions."""
    for places in combinations(range(len(one) + len(two)), len(one)):
        steps = iter(one), iter(two)
        yield [
            (side, next(steps[side]))
            for side in (0 if place in places else 1 for place in range(len(one) + len(two)))
        ]


def _play(sessions: tuple[Session, Session], steps: list[tuple[int, str]]) -> list[str]:
    """What the sessions are told. The steps of one that waits come when it is through."""
    told, waiting, to_do = list[str](), set[int](), list(steps)
    while to_do or waiting:
        for side in [side for side in waiting if sessions[side].is_through(0.05)]:
            told.append(sessions[side].answer())
            waiting.discard(side)
        free = next((step for step in to_do if step[0] not in waiting), None)
        if free:
            to_do.remove(free)
            sessions[free[0]].start(free[1])
            waiting.add(free[0])
    return told


def test_a_claim_and_a_report_that_comes_after_its_lease_never_wait_in_a_circle(db: Database) -> None:
    """The report holds an event behind the head of one aggregate and asks for the head of another."""
    admin = db.connect()
    subscription = subscribe(admin)
    late, claiming = (Session(db.connect()) for _ in range(2))

    def reported(event: Row) -> str:
        told = {"subscription_id": subscription, "event_id": str(event["event_id"]), "token": event["token"]}
        results = json.dumps([told | {"status": "released"}])
        return f"select verdict from queues.settle_events('late', '{results}')"

    claim = f"select event_id from queues.claim_events('other', {subscription}, 100)"
    for number in range(35):
        emit_changes(admin, "a", "a", "b")
        _, second, other = claim_events(admin, subscription, "late", lease="1 second")
        admin.execute("update queues.test_clock set shifted_by = shifted_by + interval '1 hour'")
        reports = ["begin", reported(second), reported(other), "commit"]
        order = list(_merged(reports, ["begin", claim, "commit"]))[number]
        told = _play((late, claiming), order)
        assert not [answer for answer in told if answer.startswith(REFUSED)]
        admin.execute("update queues.test_clock set shifted_by = shifted_by + interval '1 hour'")
        assert len(settle(admin, subscription, claim_events(admin, subscription))) == 3


def test_a_claim_passes_over_what_is_being_settled_and_what_follows_it(db: Database) -> None:
    admin = db.connect()
    subscription = subscribe(admin)
    first, *_ = emit_changes(admin, "a", "a", "a")
    events = claim_events(admin, subscription, "late", lease="1 second")
    admin.execute("update queues.test_clock set shifted_by = interval '1 hour'")
    late = db.connect("holdfast_dispatcher", autocommit=False)
    settle(late, subscription, events[1:2], "released", "late")

    assert ids(claim_events(db.connect("holdfast_dispatcher"), subscription, "d2")) == [first]


@pytest.mark.parametrize(
    "arguments",
    [
        {"dispatcher_id": ""},
        {"dispatcher_id": None},
        {"max_events": 0},
        {"max_events": 10_001},
        {"lease": timedelta(0)},
        {"lease": None},
    ],
)
def test_a_claim_that_cannot_be_meant_is_refused(
    tx: Connection, subscription: int, arguments: dict[str, Any]
) -> None:
    with refused(tx, "QF400"):
        call(
            tx,
            "queues.claim_events",
            {"dispatcher_id": "d1", "subscription_id": subscription} | arguments,
        )


def test_an_unknown_subscription_has_nothing(tx: Connection, subscription: int) -> None:
    assert claim_events(tx, subscription + 1) == []
