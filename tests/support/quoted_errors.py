"""Errors of supervisors, receivers and handlers that quote a value."""

import json
from uuid import UUID

from support.comms import CHANNELS
from support.engine import Connection, call, claim_one, end, enqueue, rows
from support.outbox import claim_events, emit, settle, subscribe

CANARY = "4111-1111-1111-1111"
QUOTE = f"card {CANARY} was declined"
CHECKS = {"failing_supervisor", "failing_type", "outbox"}


def fail_all(conn: Connection) -> UUID:
    """Health has a line of each of CHECKS with such an error. Returns a task whose event was refused."""
    _fail_supervisor(conn)
    _open_breaker(conn)
    unusable = {str(subscribe(conn, "unusable", "nothing.*")): QUOTE}
    call(conn, "queues.dispatcher_heartbeat", {"dispatcher_id": "d1", "unusable": json.dumps(unusable)})
    return _refuse_end(conn)


def _fail_supervisor(conn: Connection) -> None:
    CHANNELS[0].kick_off(conn)
    end(conn, claim_one(conn, queues=["comms"]), "retry", error={"kind": "Declined", "message": QUOTE})
    rows(conn, "select * from queues.find_orphans()")


def _open_breaker(conn: Connection) -> None:
    crm = subscribe(conn, "crm", "order.*")
    for _ in range(5):
        emit(conn)
    settle(conn, crm, claim_events(conn, crm), "failed", error=QUOTE)


def _refuse_end(conn: Connection) -> UUID:
    erp = subscribe(conn, "erp", "task.*")
    task_id = enqueue(conn, "refused.one")
    end(conn, claim_one(conn, queues=["refused"]))
    settle(conn, erp, claim_events(conn, erp), "failed", error=QUOTE)
    return task_id
