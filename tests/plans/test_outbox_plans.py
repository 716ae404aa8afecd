"""Dispatchers find their events by index, however many were sent before and however many wait for others."""

import json

import pytest

from support.database import Database
from support.engine import Connection, Row
from support.outbox import claim_events, emit, subscribe
from support.query_cost import Meter

LARGE = {"outbox_event", "delivery", "delivered", "dead_delivery"}
MANY = 100_000

SENT_LONG_AGO = """
with made as (
  insert into queues.outbox_event (event_id, event_number, transaction_id, occurred_at, event_type,
    aggregate_id, emitted_by, namespace, deliveries, data)
  select gen_random_uuid(), nextval('queues.event_number'), pg_current_xact_id(), queues.clock(),
    'order.sent', 'a ' || n, 'test', 'test', 1, '{}'
  from generate_series(1, %s) n returning event_id, event_number, aggregate_id)
insert into queues.delivered (event_id, subscription_id, delivered_at, attempt, dispatcher_id)
select event_id, %s, queues.clock(), 1, 'd0' from made
"""
WAITING_FOR_OTHERS = """
insert into queues.delivery (subscription_id, namespace, aggregate_id, event_number, event_id, emitted_at,
  due_at, attempt, counted)
select %s, e.namespace, e.aggregate_id, e.event_number, e.event_id, e.occurred_at, e.occurred_at, 0, false
from queues.outbox_event e where e.event_type = 'order.sent'
"""


def furnish(conn: Connection) -> tuple[int, int]:
    ours, others = subscribe(conn, "ours", "order.created"), subscribe(conn, "others", "order.sent")
    for n in range(300):
        emit(conn, "order.created", aggregate_id=f"order {n % 60}")
    return ours, others


def efforts(meter: Meter, ours: int) -> dict[str, tuple[int, set[str]]]:
    """Pages that each call touches, and the large tables that it reads to the end."""
    found = {}
    for _ in range(2):  # the first may still have to plan
        with meter.conn.transaction(force_rollback=True):
            claimed = meter.measure(f"select * from queues.claim_events('d1', {ours}, 100)")
        with meter.conn.transaction(force_rollback=True):
            results = _results(ours, claim_events(meter.conn, ours, max_events=100))
            settled = meter.measure(f"select * from queues.settle_events('d1', '{results}')")
        with meter.conn.transaction(force_rollback=True):
            emitted = meter.measure("select queues.emit('order.created', '{}', 'order 7')")
        calls = {"claim_events": claimed, "settle_events": settled, "emit": emitted}
        found = {name: (effort.pages, LARGE & {*effort.read_whole}) for name, effort in calls.items()}
    return found


def _results(subscription_id: int, events: list[Row]) -> str:
    return json.dumps(
        [
            {
                "subscription_id": subscription_id,
                "event_id": str(event["event_id"]),
                "token": event["token"],
                "status": "delivered",
            }
            for event in events
        ]
    )


@pytest.mark.timeout(300)
def test_events_of_others_and_of_long_ago_cost_nothing(db: Database) -> None:
    admin, early = db.connect(), Meter(db.connect())
    ours, others = furnish(admin)
    at_first = efforts(early, ours)
    admin.execute(SENT_LONG_AGO, [MANY, ours])
    admin.execute(WAITING_FOR_OTHERS, [others])
    with_stale_statistics = efforts(early, ours)
    admin.execute("analyze")
    afterwards = efforts(Meter(db.connect()), ours)

    for when in (at_first, with_stale_statistics, afterwards):
        assert {name: whole for name, (_, whole) in when.items() if whole} == {}
    for when in (with_stale_statistics, afterwards):
        for name, (pages, _) in when.items():
            assert pages <= 3 * at_first[name][0] + 100, (name, pages, at_first[name])
