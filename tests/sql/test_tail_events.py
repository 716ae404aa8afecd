"""queues.tail_events: every event once, also those whose transaction commits late."""

import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast._install.postgres.installation import EMBEDDED_VERSION, binaries
from holdfast._install.schema import migrate
from support.database import Database
from support.engine import Connection, Row, call, enqueue, refused, rows, value
from support.outbox import emit
from support.server import disposable_server


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


def as_in_a_new_cluster(tx: Connection) -> Row:
    """The events that were restored have ids of transactions that this cluster has not given yet."""
    for number in range(3):
        tx.execute(
            """insert into queues.outbox_event (event_id, event_number, transaction_id, occurred_at,
                 event_type, emitted_by, namespace, deliveries, data)
               values (gen_random_uuid(), %s - 10, '5000000000', now(),
                 'a.b', 'shop', 'postgres', 0, '{}')""",
            [number],
        )
    return _tail(tx)[-1]


def test_a_position_stays_valid_in_a_new_cluster(tx: Connection) -> None:
    last = as_in_a_new_cluster(tx)
    place = {"after_transaction": last["transaction_id"], "after_number": last["event_number"]}

    emitted = [emit(tx) for _ in range(2)]

    assert [row["event_id"] for row in _tail(tx, **place)] == emitted
    assert [row["final"] for row in _tail(tx)][:3] == [True] * 3


def test_a_position_stays_valid_in_a_new_cluster_if_all_events_were_removed_before(tx: Connection) -> None:
    tx.execute("update queues.event_order set newest = 5000000000")

    emitted = emit(tx)

    after = _tail(tx, after_transaction=5000000000, after_number=7)
    assert [row["event_id"] for row in after] == [emitted]


def test_nothing_is_shifted_in_the_same_cluster(db: Database) -> None:
    one, other = db.connect(autocommit=False), db.connect(autocommit=False)
    for conn in (one, other, one):
        emit(conn)
    other.commit()
    emit(one)
    call(one, "queues.take_sample", {})
    emit(one)
    one.commit()
    assert rows(db.connect(), "select shift from queues.event_order") == [{"shift": 0}]


def test_a_sample_corrects_what_another_cluster_has_counted(tx: Connection) -> None:
    enqueue(tx)
    tx.execute("update queues.lane set leaving = 5000000000")

    call(tx, "queues.take_sample", {})

    assert rows(tx, "select leaving from queues.lane") == [{"leaving": None}]


@pytest.mark.full
def test_a_reader_goes_on_after_a_restore_into_a_new_cluster(db: Database, tmp_path: Path) -> None:
    conn, dump, tools = db.connect(), tmp_path / "dump.sql", binaries(EMBEDDED_VERSION)
    emit(conn)
    with disposable_server() as new:
        for name in ("roles", "restored"):
            with psycopg.connect(new.url("postgres"), autocommit=True) as admin:
                admin.execute(f"create database {name}".encode())
        migrate(new.url("roles"))
        with psycopg.connect(new.url("restored"), autocommit=True) as restored:
            ahead = value(restored, "select pg_current_xact_id()::text::bigint") + 2000
            while value(conn, "select pg_current_xact_id()::text::bigint") < ahead:
                pass
            last = emit(conn)
            place = next(row for row in _tail(conn) if row["event_id"] == last)
            dump_it = [str(tools / "pg_dump"), "--no-toast-compression", "--file", str(dump), db.dsn]
            subprocess.run(dump_it, check=True)
            psql = [
                str(tools / "psql"),
                "--quiet",
                "--no-psqlrc",
                "--set",
                "ON_ERROR_STOP=1",
                "--file",
                str(dump),
            ]
            subprocess.run([*psql, new.url("restored")], check=True, stdout=subprocess.DEVNULL)

            emitted = [emit(restored) for _ in range(3)]

            after = _tail(
                restored, after_transaction=place["transaction_id"], after_number=place["event_number"]
            )
            assert [row["event_id"] for row in after] == emitted
            assert all(row["final"] for row in after)
