"""The breaker of a subscription: what opens it, how one event probes the receiver, and what closes it."""

from support.clock import Clock
from support.database import Database
from support.engine import Connection, call
from support.outbox import claim_events, emit, emit_changes, outbox_status, settle, subscribe


def _failing(tx: Connection, subscription: int, times: int = 5) -> None:
    """This many consecutive failures, each of a separate event."""
    for _ in range(times):
        emit(tx)
    settle(tx, subscription, claim_events(tx, subscription, max_events=times), "failed", error="down")


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
    emit_changes(tx, *"uvwxyz")
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


def test_a_breaker_that_an_operator_has_locked_keeps_no_other_subscription(db: Database) -> None:
    """The operator has called resume_subscription and stays in the transaction."""
    admin = db.connect()
    one = subscribe(admin, "one")
    _failing(admin, one, 1)
    two = subscribe(admin, "two")
    emit_changes(admin, "a", "b", "c", "d", "e")
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
    assert (outbox_status(admin, "one")["failures"], outbox_status(admin, "two")["breaker"]) == (1, "open")
