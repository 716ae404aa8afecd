"""The outbox, called as any driver would."""

import json
from typing import Any, cast
from uuid import UUID

from support.engine import Connection, Row, answer, call, rows, value


def subscribe(conn: Connection, name: str = "all", *event_types: str, **more: Any) -> int:
    arguments: dict[str, Any] = {
        "name": name,
        "sink": "console",
        "target": "-",
        "event_types": list(event_types or ["*"]),
    }
    sent = arguments | more
    if "options" in sent:
        sent["options"] = json.dumps(sent["options"])
    return cast("int", answer(conn, "queues.subscribe", sent))


def emit(conn: Connection, event_type: str | None = "order.created", **more: Any) -> UUID:
    return cast("UUID", answer(conn, "queues.emit", {"event_type": event_type, **more}))


def emit_changes(conn: Connection, *aggregates: str | None) -> list[UUID]:
    """One event of each of these aggregates, in this order."""
    return [emit(conn, "order.changed", aggregate_id=aggregate) for aggregate in aggregates]


def claim_events(conn: Connection, subscription_id: int, dispatcher_id: str = "d1", **more: Any) -> list[Row]:
    arguments = {"dispatcher_id": dispatcher_id, "subscription_id": subscription_id, **more}
    return call(conn, "queues.claim_events", arguments)


def settle(
    conn: Connection,
    subscription_id: int,
    events: list[Row],
    status: str = "delivered",
    dispatcher_id: str = "d1",
    **more: Any,
) -> list[str]:
    """Say the same of all of them, and answer the verdicts."""
    results = [
        {"subscription_id": subscription_id, "event_id": e["event_id"], "token": e["token"], "status": status}
        | more
        for e in events
    ]
    found = call(conn, "queues.settle_events", {"dispatcher_id": dispatcher_id, "results": results})
    return [row["verdict"] for row in found]


def ids(events: list[Row]) -> list[UUID]:
    return [event["event_id"] for event in events]


def outbox_status(conn: Connection, name: str = "all") -> Row:
    (row,) = rows(conn, "select * from queues.outbox_status where name = %s", [name])
    return row


def deliveries(conn: Connection, event_id: UUID) -> dict[str, str]:
    """How the event stands with each subscription."""
    found = rows(conn, "select * from queues.delivery_status where event_id = %s", [event_id])
    return {row["subscription"]: row["status"] for row in found}


def count_events(conn: Connection) -> int:
    return cast("int", value(conn, "select count(*) from queues.outbox_event"))
