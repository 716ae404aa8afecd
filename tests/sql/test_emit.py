"""queues.emit: an event and its deliveries, in the caller's transaction."""

from typing import Any

import pytest

from support.clock import NOON, Clock
from support.database import Database
from support.engine import Connection, JsonText, refused, rows
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


def test_an_idle_dispatcher_is_woken_once_per_transaction_and_a_busy_one_is_not(db: Database) -> None:
    admin, dispatcher = db.connect(), db.connect("holdfast_dispatcher")
    subscribe(admin)
    dispatcher.execute("listen holdfast_outbox")

    dispatcher.execute("select queues.attend_outbox('d1', idle => false)")
    emit(admin)
    dispatcher.execute("select queues.attend_outbox('d1', idle => true)")
    with admin.transaction():
        emit(admin)
        emit(admin)
    admin.execute("notify holdfast_outbox, 'that was all'")

    heard = []
    for notice in dispatcher.notifies(timeout=30):
        heard.append(notice.payload)
        if notice.payload:
            break
    assert heard == ["", "that was all"]


def test_nobody_is_woken_for_what_nobody_asks_for(db: Database) -> None:
    admin, dispatcher = db.connect(), db.connect("holdfast_dispatcher")
    dispatcher.execute("listen holdfast_outbox")
    dispatcher.execute("select queues.attend_outbox('d1', idle => true)")

    emit(admin)
    admin.execute("notify holdfast_outbox, 'that was all'")

    assert [notice.payload for notice in dispatcher.notifies(timeout=30, stop_after=1)] == ["that was all"]
