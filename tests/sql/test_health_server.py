"""What queues.health says of the server: sessions that keep a snapshot, replication slots, and growth."""

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, answer, value
from support.health import checks, health, level, line


def test_a_session_that_keeps_a_snapshot(db: Database) -> None:
    admin, holder = db.connect(), db.connect("holdfast_client", autocommit=False)
    holder.execute("select queues.enqueue('mail.send')")
    pid = holder.info.backend_pid
    admin.execute("grant pg_read_all_stats to holdfast_owner")
    try:
        admin.execute("update queues.test_clock set shifted_by = interval '6 minutes'")
        found = line(db.connect("holdfast_reader"), "oldest_snapshot", f"session {pid}")
        assert (found["level"], 360 <= found["value"] < 420) == ("amber", True)
        assert "holdfast_client_login" in found["message"]
        assert found["message"].endswith(": idle in transaction")  # without its query, which contains values
        assert f"pg_terminate_backend({pid})" in found["advice"]
        assert "hidden_sessions" not in checks(admin)
        admin.execute("update queues.test_clock set shifted_by = interval '2 hours'")
        assert level(admin, "oldest_snapshot", f"session {pid}") == "red"
    finally:
        admin.execute("revoke pg_read_all_stats from holdfast_owner")


def test_a_session_of_which_only_its_transaction_is_seen(db: Database) -> None:
    """Without a right to see more, the samples tell how long it has been there."""
    admin, holder = db.connect(), db.connect(autocommit=False)
    clock = Clock(admin)
    holder.execute("select pg_current_xact_id()")
    pid = holder.info.backend_pid
    for _ in range(10):
        answer(admin, "queues.take_sample", {})
        clock.advance(60)

    reader = db.connect("holdfast_reader")
    found = line(reader, "oldest_snapshot", f"session {pid}")
    assert (found["level"], found["value"]) == ("amber", 600)
    assert found["facts"]["state"] is None
    assert "grant pg_read_all_stats to holdfast_owner" in line(reader, "hidden_sessions")["advice"]
    holder.rollback()
    assert not [row for row in health(reader) if row["subject"] == f"session {pid}"]


def test_a_session_that_came_after_the_samples_is_young(db: Database) -> None:
    admin, holder = db.connect(), db.connect(autocommit=False)
    clock = Clock(admin)
    for _ in range(5):
        answer(admin, "queues.take_sample", {})
        clock.advance(60)
    holder.execute("select pg_current_xact_id()")

    found = line(db.connect("holdfast_reader"), "oldest_snapshot", f"session {holder.info.backend_pid}")
    assert (found["level"], found["value"]) == ("green", 0)


def test_a_replication_slot_that_nobody_reads(db: Database) -> None:
    if value(db.connect(), "show wal_level") == "minimal":
        pytest.skip("this server keeps no slots")
    admin = db.connect()
    admin.execute("select pg_create_physical_replication_slot('standby', true)")
    try:
        assert value(admin, "select count(*) from pg_replication_slots") == 1
        assert [row for row in health(admin) if row["level"] == "red"] == []
    finally:
        admin.execute("select pg_drop_replication_slot('standby')")


def test_growth_is_told_once_there_is_a_sample(tx: Connection, clock: Clock) -> None:
    assert "is known after" in line(tx, "growth")["message"]
    answer(tx, "queues.take_sample", {})
    tx.execute("update queues.sample set bytes = 0")
    clock.advance(2 * 3600)

    found, size = line(tx, "growth"), line(tx, "size")["value"]
    assert (found["level"], found["value"]) == ("green", pytest.approx(12 * size))
    assert size > 100_000


def test_a_clock_set_back_does_not_keep_samples_from_being_taken(tx: Connection, clock: Clock) -> None:
    answer(tx, "queues.take_sample", {})
    clock.advance(-3600)

    assert answer(tx, "queues.take_sample", {})
