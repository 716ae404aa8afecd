"""queues.claim_events and queues.settle_events: order, leases, failures, breakers, death."""

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import combinations
from typing import Any
from uuid import UUID

import pytest

from support.clock import NOON, Clock
from support.database import Database
from support.engine import Connection, Row, answer, call, refused, rows, value
from support.interleaving import REFUSED, Session
from support.outbox import claim_events, deliveries, emit, ids, outbox_status, settle, subscribe


@pytest.fixture
def subscription(tx: Connection, clock: Clock) -> int:
    return subscribe(tx)


def _emit(tx: Connection, *aggregates: str | None) -> list[UUID]:
    return [emit(tx, "order.changed", aggregate_id=aggregate) for aggregate in aggregates]


def _failing(tx: Connection, subscription: int, times: int = 5) -> None:
    """This many consecutive failures, each of a separate event."""
    for _ in range(times):
        emit(tx)
    settle(tx, subscription, claim_events(tx, subscription, max_events=times), "failed", error="down")


def test_events_of_an_aggregate_are_claimed_together_and_in_order(tx: Connection, subscription: int) -> None:
    a1, b1, a2, a3 = _emit(tx, "a", "b", "a", "a")

    assert ids(claim_events(tx, subscription)) == [a1, a2, a3, b1]


def test_what_follows_a_claimed_event_waits_for_it(tx: Connection, subscription: int) -> None:
    a1, a2 = _emit(tx, "a", "a")

    first = claim_events(tx, subscription, max_events=1)
    assert ids(first) == [a1]
    assert claim_events(tx, subscription, "d2") == []
    settle(tx, subscription, first)
    assert ids(claim_events(tx, subscription, "d2")) == [a2]


def test_what_follows_a_failed_event_waits_until_that_was_delivered(
    tx: Connection, subscription: int, clock: Clock
) -> None:
    a1, a2, b1 = _emit(tx, "a", "a", "b")
    one, two, _ = claim_events(tx, subscription)
    settle(tx, subscription, [one], "failed", error="HTTP 500")
    settle(tx, subscription, [two], "released")

    assert claim_events(tx, subscription) == []
    clock.advance(2)
    retried = claim_events(tx, subscription)
    assert [(e["event_id"], e["attempt"]) for e in retried] == [(a1, 2), (a2, 1)]
    assert deliveries(tx, b1) == {"all": "in_flight"}


def test_events_without_an_aggregate_do_not_wait_for_each_other(tx: Connection, subscription: int) -> None:
    first, second = _emit(tx, None, None)

    assert ids(claim_events(tx, subscription, max_events=1)) == [first]
    assert ids(claim_events(tx, subscription, max_events=1)) == [second]


def test_a_claim_is_shared_out_over_aggregates_before_it_goes_deep(tx: Connection, subscription: int) -> None:
    _emit(tx, *["a"] * 10, *["b"] * 10, "c")

    claimed = claim_events(tx, subscription, max_events=6)

    assert [e["aggregate_id"] for e in claimed] == ["a", "a", "b", "b", "c"]


def test_a_claim_goes_on_where_the_last_one_ended_and_then_from_the_beginning(
    tx: Connection, subscription: int
) -> None:
    _emit(tx, "a", "b", "c", "d")

    claimed = claim_events(tx, subscription, max_events=3, after_aggregate="b")

    assert sorted(e["aggregate_id"] for e in claimed) == ["a", "c", "d"]
    assert [e["aggregate_id"] for e in claim_events(tx, subscription, max_events=3, after_aggregate="c")] == [
        "b"
    ]


def test_each_subscription_has_its_own_progress(tx: Connection, subscription: int) -> None:
    other = subscribe(tx, "other")
    (event_id,) = _emit(tx, "a")
    settle(tx, subscription, claim_events(tx, subscription))

    assert deliveries(tx, event_id) == {"all": "delivered", "other": "waiting"}
    assert ids(claim_events(tx, other)) == [event_id]


def test_what_a_killed_dispatcher_held_goes_out_again_after_its_lease(
    tx: Connection, subscription: int, clock: Clock
) -> None:
    a1, a2 = _emit(tx, "a", "a")
    lost = claim_events(tx, subscription, lease=timedelta(seconds=10))
    clock.advance(9)
    assert claim_events(tx, subscription, "d2") == []
    clock.advance(2)

    again = claim_events(tx, subscription, "d2")

    assert [(e["event_id"], e["attempt"]) for e in again] == [(a1, 2), (a2, 1)]
    assert settle(tx, subscription, lost) == ["lost", "lost"]
    assert settle(tx, subscription, again, dispatcher_id="d2") == ["accepted", "accepted"]
    assert settle(tx, subscription, lost) == ["already_done", "already_done"]


def test_a_late_report_is_heard_while_nobody_else_has_claimed(
    tx: Connection, subscription: int, clock: Clock
) -> None:
    _emit(tx, "a")
    held = claim_events(tx, subscription)
    clock.advance(3600)

    assert settle(tx, subscription, held) == ["accepted"]


def test_a_report_needs_the_token_and_the_name(tx: Connection, subscription: int) -> None:
    _emit(tx, "a")
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
    _emit(tx, "a")
    tx.execute("update queues.delivery set attempt = %s", [attempt - 1])
    settle(tx, subscription, claim_events(tx, subscription), "failed")

    waits = value(tx, "select extract(epoch from due_at - queues.clock()) from queues.delivery")

    raw = min(3600, 2 ** (attempt - 1))
    assert raw <= waits <= raw * 1.5


def test_a_receiver_may_say_how_long_to_wait(tx: Connection, subscription: int) -> None:
    (event_id,) = _emit(tx, "a")
    settle(tx, subscription, claim_events(tx, subscription), "failed", delay=120)

    due = value(tx, "select due_at from queues.delivery_status where event_id = %s", [event_id])
    assert due == NOON + timedelta(seconds=120)


@pytest.mark.parametrize("delay", [-5, 1e9, "Infinity", "NaN"])
def test_an_absurd_wait_is_not_believed(tx: Connection, subscription: int, delay: Any) -> None:
    _emit(tx, "a")
    settle(tx, subscription, claim_events(tx, subscription), "failed", delay=delay)

    assert value(tx, "select due_at - queues.clock() < '2 seconds' from queues.delivery") is True


def test_an_event_dies_when_its_attempts_are_used_up_and_the_next_one_goes(
    tx: Connection, clock: Clock
) -> None:
    subscription = subscribe(tx, "two", max_attempts=2)
    a1, a2 = _emit(tx, "a", "a")
    for _ in range(2):
        settle(tx, subscription, claim_events(tx, subscription, max_events=1), "failed", error="no")
        clock.advance(10)

    assert deliveries(tx, a1) == {"two": "dead"}
    assert (outbox_status(tx, "two")["dead"], outbox_status(tx, "two")["last_error"]) == (1, "no")
    assert ids(claim_events(tx, subscription)) == [a2]


def test_a_rejected_event_dies_at_once_and_does_not_count_for_the_breaker(
    tx: Connection, subscription: int
) -> None:
    events = _emit(tx, *"abcdef")
    settle(tx, subscription, claim_events(tx, subscription), "rejected", error="too large")

    assert outbox_status(tx)["dead"] == len(events)
    assert outbox_status(tx)["breaker"] == "closed"


def test_an_event_that_kills_its_dispatchers_dies_too(tx: Connection, clock: Clock) -> None:
    subscription = subscribe(tx, "two", max_attempts=2)
    a1, a2 = _emit(tx, "a", "a")
    for _ in range(2):
        assert ids(claim_events(tx, subscription)) == [a1, a2]
        clock.advance(61)

    assert claim_events(tx, subscription) == []

    assert deliveries(tx, a1) == {"two": "dead"}
    assert [(e["event_id"], e["attempt"]) for e in claim_events(tx, subscription)] == [(a2, 1)]


def test_a_released_event_has_used_no_attempt(tx: Connection, subscription: int) -> None:
    _emit(tx, "a", "a")
    held = claim_events(tx, subscription)

    assert settle(tx, subscription, held, "released") == ["accepted", "accepted"]
    assert [e["attempt"] for e in claim_events(tx, subscription)] == [1, 1]


def test_five_failures_in_a_row_open_the_breaker(tx: Connection, subscription: int, clock: Clock) -> None:
    _failing(tx, subscription, 4)
    assert outbox_status(tx)["breaker"] == "closed"
    _failing(tx, subscription, 1)

    status = outbox_status(tx)
    assert (status["breaker"], status["failures"], status["last_error"]) == ("open", 5, "down")
    emit(tx)
    assert claim_events(tx, subscription) == []


def test_a_success_in_between_keeps_the_breaker_closed(tx: Connection, subscription: int) -> None:
    _failing(tx, subscription, 4)
    emit(tx)
    settle(tx, subscription, claim_events(tx, subscription, max_events=1))
    _failing(tx, subscription, 4)

    assert outbox_status(tx)["breaker"] == "closed"


def test_after_a_while_one_event_probes_the_receiver(tx: Connection, subscription: int, clock: Clock) -> None:
    _failing(tx, subscription)
    clock.advance(4)
    assert outbox_status(tx)["breaker"] == "half-open"

    probe = claim_events(tx, subscription)

    assert len(probe) == 1
    assert claim_events(tx, subscription, "d2") == []
    settle(tx, subscription, probe)
    assert outbox_status(tx)["breaker"] == "closed"
    assert len(claim_events(tx, subscription)) == 4


def test_a_failed_probe_opens_the_breaker_for_longer(tx: Connection, subscription: int, clock: Clock) -> None:
    _failing(tx, subscription)
    waits = []
    for _ in range(4):
        clock.advance(500)
        settle(tx, subscription, claim_events(tx, subscription), "failed", error="still down")
        waits.append((outbox_status(tx)["open_until"] - clock.now).total_seconds())

    assert all(low <= wait <= 1.5 * low for wait, low in zip(waits, [4, 8, 16, 32], strict=True))


def test_failures_that_were_on_their_way_do_not_prolong_an_open_breaker(
    tx: Connection, subscription: int, clock: Clock
) -> None:
    _emit(tx, *"uvwxyz")
    early = claim_events(tx, subscription)
    _failing(tx, subscription)
    open_until = outbox_status(tx)["open_until"]

    settle(tx, subscription, early, "failed")

    assert outbox_status(tx)["open_until"] == open_until


def test_the_probe_of_a_killed_dispatcher_is_repeated_after_its_lease(
    tx: Connection, subscription: int, clock: Clock
) -> None:
    _failing(tx, subscription)
    clock.advance(4)
    claim_events(tx, subscription)
    clock.advance(61)

    assert len(claim_events(tx, subscription, "d2")) == 1


def test_a_probe_that_was_given_back_is_taken_by_the_next(
    tx: Connection, subscription: int, clock: Clock
) -> None:
    _failing(tx, subscription)
    clock.advance(4)
    settle(tx, subscription, claim_events(tx, subscription), "released")

    assert len(claim_events(tx, subscription, "d2")) == 1


def test_resuming_closes_the_breaker(tx: Connection, subscription: int, clock: Clock) -> None:
    _failing(tx, subscription)
    call(tx, "queues.resume_subscription", {"name": "all"})

    assert outbox_status(tx)["breaker"] == "closed"


def test_one_receiver_that_is_down_does_not_concern_another(tx: Connection, subscription: int) -> None:
    other = subscribe(tx, "other")
    _failing(tx, subscription)

    assert len(claim_events(tx, other)) == 5


def test_dead_events_get_a_fresh_set_of_attempts(tx: Connection, subscription: int) -> None:
    a1, b1, c1 = _emit(tx, *"abc")
    settle(tx, subscription, claim_events(tx, subscription), "rejected")

    assert answer(tx, "queues.redrive_events", {"name": "all", "event_id": b1}) == 1
    assert [(e["event_id"], e["attempt"]) for e in claim_events(tx, subscription)] == [(b1, 1)]
    assert answer(tx, "queues.redrive_events", {"name": "all", "max_events": 1}) == 1
    assert answer(tx, "queues.redrive_events", {"name": "all"}) == 1
    assert answer(tx, "queues.redrive_events", {"name": "all"}) == 0
    assert set(ids(claim_events(tx, subscription))) == {a1, c1}


def test_an_event_that_was_redriven_does_not_overtake_what_is_on_its_way(
    tx: Connection, subscription: int
) -> None:
    a1, a2 = _emit(tx, "a", "a")
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
        _emit(admin, "a", "a", "b")
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
    first, *_ = _emit(admin, "a", "a", "a")
    events = claim_events(admin, subscription, "late", lease="1 second")
    admin.execute("update queues.test_clock set shifted_by = interval '1 hour'")
    late = db.connect("holdfast_dispatcher", autocommit=False)
    settle(late, subscription, events[1:2], "released", "late")

    assert ids(claim_events(db.connect("holdfast_dispatcher"), subscription, "d2")) == [first]


def test_a_breaker_that_an_operator_has_locked_keeps_no_other_subscription(db: Database) -> None:
    """The operator has called resume_subscription and stays in the transaction."""
    admin = db.connect()
    one, two = subscribe(admin, "one"), subscribe(admin, "two")
    _emit(admin, "a", "b", "c", "d", "e")
    dispatcher = db.connect("holdfast_dispatcher")
    claimed = {number: claim_events(dispatcher, number) for number in (one, two)}
    operator = db.connect("holdfast_operator", autocommit=False)
    operator.execute("select queues.resume_subscription('one')")
    results = [
        {"subscription_id": number, "event_id": e["event_id"], "token": e["token"], "status": "failed"}
        for number, events in claimed.items()
        for e in events
    ]

    found = call(dispatcher, "queues.settle_events", {"dispatcher_id": "d1", "results": results})

    assert {row["verdict"] for row in found} == {"accepted"}
    assert (outbox_status(admin, "one")["failures"], outbox_status(admin, "two")["breaker"]) == (0, "open")


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
    _emit(tx, "a")
    settle(tx, subscription, claim_events(tx, subscription))
    clock.advance(7 * 86400)
    assert _prune(tx) == 0
    clock.advance(1)

    assert _prune(tx) == 2
    assert (_left(tx)["events"], _left(tx)["delivered"]) == (0, 0)


def test_what_is_outstanding_is_never_pruned(tx: Connection, subscription: int, clock: Clock) -> None:
    other = subscribe(tx, "other")
    _emit(tx, "a", "a", "b")
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
    _emit(tx, "a")
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
    _emit(tx, "a", "b", "c")
    settle(tx, subscription, claim_events(tx, subscription, max_events=1), "rejected")
    call(tx, "queues.unsubscribe", {"name": "all"})

    _prune(tx)

    left = _left(tx)
    assert (left["outstanding"], left["dead"], left["subscriptions"], left["events"]) == (3, 0, 1, 3)
    assert len(claim_events(tx, other)) == 3


def test_pruning_is_done_in_bounded_steps(tx: Connection, subscription: int, clock: Clock) -> None:
    _emit(tx, *["a"] * 5)
    settle(tx, subscription, claim_events(tx, subscription))
    clock.advance(8 * 86400)

    assert [_prune(tx, max_events=2) for _ in range(4)] == [4, 4, 2, 0]


def test_an_absurd_age_is_refused(tx: Connection) -> None:
    for arguments in ({"older_than": timedelta(-1)}, {"max_events": 0}, {"dead_older_than": None}):
        with refused(tx, "QF400", "prune_events needs"):
            _prune(tx, **arguments)
