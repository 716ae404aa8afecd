"""queues.tail_events: every event once, also those whose transaction commits late."""

from typing import Any

from support.database import Database
from support.engine import Connection, call, refused
from support.outbox import emit


def _tail(conn: Connection, **arguments: Any) -> list[dict[str, Any]]:
    return call(conn, "queues.tail_events", arguments)


def test_without_a_place_it_answers_the_newest_oldest_first(tx: Connection) -> None:
    emitted = [emit(tx) for _ in range(5)]

    assert [row["event_id"] for row in _tail(tx, max_events=3)] == emitted[2:]


def test_from_a_place_on_it_answers_what_came_after(tx: Connection) -> None:
    emitted = [emit(tx) for _ in range(5)]
    place = _tail(tx)[1]

    after = _tail(tx, after_transaction=place["transaction_id"], after_number=place["event_number"])

    assert [row["event_id"] for row in after] == emitted[2:]


def test_what_may_still_be_overtaken_is_not_final(db: Database) -> None:
    admin, late = db.connect(), db.connect("holdfast_client", autocommit=False)
    first = emit(admin)
    slow = emit(late)
    fast = emit(admin)

    before = _tail(admin)
    assert [(row["event_id"], row["final"]) for row in before] == [(first, True), (fast, False)]

    last = next(row for row in before[::-1] if row["final"])
    place = {"after_transaction": last["transaction_id"], "after_number": last["event_number"]}
    assert [(row["event_id"], row["final"]) for row in _tail(admin, **place)] == [(fast, False)]

    late.commit()
    after = _tail(admin, **place)
    assert {row["event_id"] for row in after} == {slow, fast}
    assert all(row["final"] for row in after)


def test_a_page_has_its_bounds(tx: Connection) -> None:
    for size in (0, 10_001, None):
        with refused(tx, "QF400", "max_events"):
            _tail(tx, max_events=size)
