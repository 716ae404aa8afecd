"""Lanes that an attacker makes: how many there can be, and that they slow no other queue."""

from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, change_setting, claim, enqueue, enqueue_many, finish, held, value


def _lanes(admin: Connection) -> int:
    found: int = value(admin, "select count(*) from queues.lane")
    return found


def _tidy(db: Database) -> int:
    """As the leader does, some minutes later. Return how many lanes are left."""
    admin = db.connect()
    Clock(admin).advance(600)
    while value(db.connect("holdfast_worker"), "select queues.tidy_lanes()"):
        pass
    return _lanes(admin)


@pytest.mark.parametrize("field", ["type", "priority", "concurrency_key", "queue"])
def test_what_many_lanes_cost_ends_with_their_tasks(besieged: Database, field: str) -> None:
    mallory, worker = besieged.connect("holdfast_client"), besieged.connect("holdfast_worker")
    many: dict[str, list[Any]] = {
        "type": [f"siege.t{n}" for n in range(150)],
        "priority": list(range(-75, 75)),
        "concurrency_key": [f"k{n}" for n in range(150)],
        "queue": [f"siege{n}" for n in range(150)],
    }
    enqueue_many(mallory, [{"type": "siege.work", field: each} for each in many[field]])
    taken = claim(worker, max_tasks=1000, type_prefixes=["siege."])
    # Types beyond a few share a lane, and so do all keys.
    lanes = {"type": 33, "concurrency_key": 1}.get(field, 150)
    assert (len(taken), _lanes(besieged.connect())) == (150, lanes)
    finish(worker, held(*taken, status="succeeded"))

    assert _tidy(besieged) == 0
    enqueue(mallory, "siege.work")
    assert len(claim(worker, max_tasks=5, queues=["siege"])) == 1


@pytest.mark.parametrize("many", [True, False])
def test_a_login_cannot_make_lanes_without_bound(besieged: Database, many: bool) -> None:
    admin, mallory = besieged.connect(), besieged.connect("holdfast_client")
    change_setting(admin, "max_lanes", 200)
    later = "2090-01-01T00:00:00+00:00"

    def ask(n: int) -> None:
        given = {"type": "siege.work", "queue": f"siege{n}", "run_at": later}
        if many:
            enqueue_many(mallory, [{**given, "queue": f"siege{n}x{m}"} for m in range(70)])
        else:
            enqueue(mallory, **given)

    def ask_on() -> None:
        for n in range(20 if many else 2000):
            ask(n)

    with pytest.raises(psycopg.Error) as caught:
        ask_on()
    assert caught.value.sqlstate == "QF429"
    assert "max_lanes" in str(caught.value.diag.message_hint)
    assert _lanes(admin) < 200 + 70 * 64
    other = besieged.connect("holdfast_process")
    enqueue(other, "siege.other", concurrency_key="mine")  # bounds are each login's own
    enqueue(mallory, "siege.work", queue="siege0x0" if many else "siege0")
    admin.execute("delete from queues.ready where run_at > queues.clock() + interval '1 day'")
    _tidy(besieged)
    ask(20_000)


def test_a_claim_looks_at_no_lane_of_another_queue(besieged: Database) -> None:
    """Neither by queues nor by prefixes, but for one probe of the lane that many types share."""
    mallory, worker = besieged.connect("holdfast_client"), besieged.connect("holdfast_worker")
    enqueue(mallory, "calm.work")
    admin = besieged.connect()

    def pages(query: str) -> int:
        plan = value(admin, f"explain (analyze, buffers, costs off, format json) {query}")[0]["Plan"]
        return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])

    queries = [
        "select * from queues.claim('w', 1, array['calm'])",
        "select * from queues.claim('w', 1, null, array['calm.'])",
        "select * from queues.next_due(array['calm'], array['calm.'])",
    ]
    claim(worker, queues=["calm"])
    before = [pages(query) for query in queries for _ in range(2)][1::2]
    enqueue_many(mallory, [{"type": f"siege.t{n}", "run_at": "2090-01-01T00:00:00Z"} for n in range(1500)])
    admin.execute("analyze queues.lane")
    after = [pages(query) for query in queries for _ in range(2)][1::2]
    assert [now < once + 30 for once, now in zip(before, after, strict=True)] == [True] * 3, (before, after)
