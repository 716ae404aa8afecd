"""queues.emit: an event and its deliveries, in the caller's transaction."""

from typing import Any

import pytest

from support.clock import NOON, Clock
from support.database import Database
from support.engine import Connection, JsonText, call, refused, rows
from support.outbox import claim_events, count_events, deliveries, emit, outbox_status, subscribe

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_an_event_is_written_with_a_delivery_for_each_who_asks(tx: Connection) -> None:
    subscribe(tx, "all")
    subscribe(tx, "orders", "order.*")
    subscribe(tx, "created", "order.created", "invoice.created")
    subscribe(tx, "others", "invoice.*", "order", "orders.*")

    event_id = emit(tx, "order.created")

    assert deliveries(tx, event_id) == {"all": "waiting", "orders": "waiting", "created": "waiting"}


def test_an_event_that_nobody_asks_for_is_written_all_the_same(tx: Connection) -> None:
    event_id = emit(tx, "order.created", payload={"n": 1}, aggregate_id="o1")

    (row,) = rows(tx, "select * from queues.event_status")
    assert (row["event_id"], row["data"], row["aggregate_id"], row["deliveries"]) == (
        event_id,
        {"n": 1},
        "o1",
        0,
    )


def test_what_is_rolled_back_was_never_emitted(db: Database) -> None:
    client = db.connect("holdfast_client", autocommit=False)
    admin = db.connect()
    subscription = subscribe(admin)

    emit(client, "order.created")
    client.rollback()
    kept = emit(client, "order.paid")
    client.commit()

    assert [event["event_id"] for event in claim_events(admin, subscription)] == [kept]


def test_a_subscription_gets_what_is_emitted_since_it_exists(tx: Connection) -> None:
    emit(tx)
    subscribe(tx)

    assert outbox_status(tx)["pending"] == 0


def test_attributes_arrive_as_they_were_given(tx: Connection, clock: Clock) -> None:
    subscription = subscribe(tx)
    emit(tx, "order.created", aggregate_id="o1", subject="Grüße", source="urn:shop", traceparent=TRACE)
    emit(tx, "order.paid", aggregate_id="o2")

    full, plain = claim_events(tx, subscription)
    database = tx.info.dbname
    assert (full["subject"], full["source"], full["traceparent"]) == ("Grüße", "urn:shop", TRACE)
    assert (plain["subject"], plain["source"], plain["traceparent"]) == ("o2", f"/holdfast/{database}", None)
    assert full["occurred_at"] == NOON


@pytest.mark.parametrize("event_type", ["task.succeeded", "task.mine", "worker.lost", "subscription.test"])
def test_nobody_but_the_engine_emits_its_types(tx: Connection, event_type: str) -> None:
    with refused(tx, "QF403", "reserved"):
        emit(tx, event_type)


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("QF400", {"event_type": None}),
        ("QF400", {"event_type": "order..created"}),
        ("QF400", {"event_type": "order created"}),
        ("QF400", {"event_type": "x", "payload": None}),
        ("QF400", {"event_type": "x", "aggregate_id": ""}),
        ("QF400", {"event_type": "x", "aggregate_id": "a" * 501}),
        ("QF400", {"event_type": "x", "subject": "line\nbreak"}),
        ("QF400", {"event_type": "x", "source": "\x7f"}),
        ("QF400", {"event_type": "x", "traceparent": "00-0-0-0"}),
        ("QF413", {"event_type": "x", "payload": {"text": "x" * 300_000}}),
        ("QF422", {"event_type": "x", "payload": JsonText("[1e400]")}),
    ],
)
def test_what_could_not_travel_is_refused(tx: Connection, code: str, arguments: dict[str, Any]) -> None:
    with refused(tx, code):
        emit(tx, **arguments)
    assert count_events(tx) == 0


def _wait_for(dispatcher: Connection, *subscriptions: int) -> None:
    call(dispatcher, "queues.dispatcher_heartbeat", {"dispatcher_id": "d1", "waiting": list(subscriptions)})


def _heard(dispatcher: Connection, admin: Connection) -> int:
    """How often the dispatcher was woken until now."""
    admin.execute("notify holdfast_outbox, 'that was all'")
    heard = []
    for notice in dispatcher.notifies(timeout=30):
        heard.append(notice.payload)
        if notice.payload:
            break
    return len(heard) - 1


def test_a_dispatcher_is_woken_once_per_transaction_for_what_it_waits_for(db: Database) -> None:
    admin, dispatcher = db.connect(), db.connect("holdfast_dispatcher")
    orders, invoices = subscribe(admin, "a", "order.*"), subscribe(admin, "b", "invoice.*")
    dispatcher.execute("listen holdfast_outbox")

    _wait_for(dispatcher)
    emit(admin, "order.created")
    assert _heard(dispatcher, admin) == 0

    _wait_for(dispatcher, orders)
    with admin.transaction():
        emit(admin, "order.created")
        emit(admin, "order.created")
    emit(admin, "invoice.created")
    assert _heard(dispatcher, admin) == 1

    _wait_for(dispatcher, orders, invoices)
    emit(admin, "invoice.created")
    assert _heard(dispatcher, admin) == 1


def test_nobody_is_woken_for_what_nobody_asks_for(db: Database) -> None:
    admin, dispatcher = db.connect(), db.connect("holdfast_dispatcher")
    subscription = subscribe(admin, "a", "order.*")
    dispatcher.execute("listen holdfast_outbox")
    _wait_for(dispatcher, subscription)

    emit(admin, "invoice.created")

    assert _heard(dispatcher, admin) == 0
