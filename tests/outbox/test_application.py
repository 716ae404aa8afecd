"""What an application does with events: emit them, take in those of others. And what the leader tidies."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import App
from holdfast._engine import Engine, events
from holdfast._worker.duties import OutboxPruning
from holdfast.errors import InvalidArgument
from holdfast.events import ReceivedEvent, areceive, receive
from support.clock import Clock
from support.database import Database
from support.engine import value
from support.outbox import count_events

EVENT = ReceivedEvent("1", "urn:shop", "order.created", None, None, {}, {})


@pytest.fixture
def app(db: Database) -> Any:
    made = App(db.dsn)
    yield made
    made.close()


def _emitted(db: Database) -> list[tuple[str, Any, str | None]]:
    found = db.connect().execute(
        "select event_type, data, aggregate_id from queues.event_status order by event_number"
    )
    return found.fetchall()


def test_an_application_emits_in_its_own_transaction_or_by_itself(app: App, db: Database) -> None:
    conn = db.connect(autocommit=False)
    app.emit("order.created", {"order": 6}, tx=conn)
    conn.rollback()
    app.emit("order.created", {"order": 7}, "order-7", tx=conn)
    conn.commit()
    app.emit("order.paid", aggregate_id="order-7")

    assert _emitted(db) == [
        ("order.created", {"order": 7}, "order-7"),
        ("order.paid", {}, "order-7"),
    ]


async def test_the_same_in_an_event_loop(app: App, db: Database) -> None:
    event_id = await app.aemit("order.created", {"order": 7}, "order-7")

    assert _emitted(db) == [("order.created", {"order": 7}, "order-7")]
    assert value(db.connect(), "select event_id from queues.event_status") == event_id
    with pytest.raises(InvalidArgument, match="synchronous"):
        await app.aemit("order.created", tx=db.connect())


async def test_an_event_is_new_once_for_either_kind_of_transaction(db: Database) -> None:
    conn = db.connect("holdfast_client")

    assert [receive(EVENT, tx=conn), receive(EVENT, tx=conn)] == [True, False]
    with pytest.raises(InvalidArgument, match="synchronous"):
        await areceive(EVENT, tx=conn)


def test_the_leader_prunes_step_by_step_until_nothing_is_left(db: Database) -> None:
    admin = db.connect()
    clock = Clock(admin)
    engine, worker = Engine(admin), Engine(db.connect("holdfast_worker"))
    engine.run(events.emit("order.created"))
    engine.run(events.receive("1", "urn:shop"))
    clock.advance(timedelta(days=31).total_seconds())
    duty = OutboxPruning()

    assert duty.run(worker.run) == 0.0
    assert duty.run(worker.run) is None
    assert count_events(admin) == 0
    assert engine.run(events.receive("1", "urn:shop")) is True
