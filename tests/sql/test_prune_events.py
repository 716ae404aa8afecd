"""queues.prune_events: how long events are kept once they were delivered, died or lost their subscription."""

from datetime import timedelta
from typing import Any

from support.clock import Clock
from support.engine import Connection, Row, answer, call, refused, rows
from support.outbox import claim_events, emit, emit_changes, settle, subscribe


def _prune(tx: Connection, **arguments: Any) -> Any:
    return answer(tx, "queues.prune_events", arguments)


def _left(tx: Connection) -> Row:
    (row,) = rows(
        tx,
        """select (select count(*) from queues.outbox_event) as events,
             (select count(*) from queues.delivered) as delivered,
             (select count(*) from queues.dead_delivery) as dead,
             (select count(*) from queues.delivery) as outstanding,
             (select count(*) from queues.subscription) as subscriptions""",
    )
    return row


def test_what_was_delivered_is_kept_for_a_week(tx: Connection, subscription: int, clock: Clock) -> None:
    emit_changes(tx, "a")
    settle(tx, subscription, claim_events(tx, subscription))
    clock.advance(7 * 86400)
    assert _prune(tx) == 0
    clock.advance(1)

    assert _prune(tx) == 2
    assert (_left(tx)["events"], _left(tx)["delivered"]) == (0, 0)


def test_what_is_outstanding_is_never_pruned(tx: Connection, subscription: int, clock: Clock) -> None:
    other = subscribe(tx, "other")
    emit_changes(tx, "a", "a", "b")
    settle(tx, subscription, claim_events(tx, subscription))
    settle(tx, other, claim_events(tx, other, max_events=1), "failed")
    clock.advance(365 * 86400)

    assert _prune(tx) == 3
    assert (_left(tx)["events"], _left(tx)["outstanding"]) == (3, 3)
    settle(tx, other, claim_events(tx, other))
    clock.advance(8 * 86400)
    assert _prune(tx) == 6
    assert _left(tx)["events"] == 0


def test_dead_events_are_kept_longer(tx: Connection, subscription: int, clock: Clock) -> None:
    emit_changes(tx, "a")
    settle(tx, subscription, claim_events(tx, subscription), "rejected")
    clock.advance(30 * 86400)
    assert _prune(tx) == 0
    clock.advance(1)

    assert _prune(tx) == 2
    assert _left(tx)["events"] == 0


def test_what_nobody_asked_for_goes_with_the_delivered(tx: Connection, clock: Clock) -> None:
    emit(tx)
    assert _prune(tx, older_than=timedelta(days=1)) == 0
    clock.advance(86401)

    assert _prune(tx, older_than=timedelta(days=1)) == 1
    assert _left(tx)["events"] == 0


def test_what_is_left_of_a_removed_subscription_goes_at_once(
    tx: Connection, subscription: int, clock: Clock
) -> None:
    other = subscribe(tx, "other")
    emit_changes(tx, "a", "b", "c")
    settle(tx, subscription, claim_events(tx, subscription, max_events=1), "rejected")
    call(tx, "queues.unsubscribe", {"name": "all"})

    _prune(tx)

    left = _left(tx)
    assert (left["outstanding"], left["dead"], left["subscriptions"], left["events"]) == (3, 0, 1, 3)
    assert len(claim_events(tx, other)) == 3


def test_pruning_is_done_in_bounded_steps(tx: Connection, subscription: int, clock: Clock) -> None:
    emit_changes(tx, *["a"] * 5)
    settle(tx, subscription, claim_events(tx, subscription))
    clock.advance(8 * 86400)

    assert [_prune(tx, max_events=2) for _ in range(4)] == [4, 4, 2, 0]


def test_an_absurd_age_is_refused(tx: Connection) -> None:
    for arguments in ({"older_than": timedelta(-1)}, {"max_events": 0}, {"dead_older_than": None}):
        with refused(tx, "QF400", "prune_events needs"):
            _prune(tx, **arguments)
