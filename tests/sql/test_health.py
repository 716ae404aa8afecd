"""What queues.health says of every kind of trouble, and that it says nothing where there is none."""

from typing import Any

import pytest

from support import schedules
from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    Row,
    act,
    answer,
    call,
    claim,
    claim_one,
    end,
    enqueue,
    enqueue_many,
    finish,
    value,
)
from support.outbox import emit, subscribe

SERVER = {"dead_rows", "notification_queue", "transaction_ids", "size", "growth"}


def health(conn: Connection) -> list[Row]:
    return call(conn, "queues.health", {})


def line(conn: Connection, check: str, subject: str | None = None) -> Row:
    (found,) = [
        row for row in health(conn) if row["check_name"] == check and subject in (None, row["subject"])
    ]
    return found


def level(conn: Connection, check: str, subject: str | None = None) -> str:
    return str(line(conn, check, subject)["level"])


def checks(conn: Connection) -> set[str]:
    return {row["check_name"] for row in health(conn)}


def register(conn: Connection, worker_id: str = "w1", **more: Any) -> None:
    call(conn, "queues.register_worker", {"worker_id": worker_id, **more})


def test_an_idle_installation_is_green(tx: Connection, clock: Clock) -> None:
    register(tx)
    answer(tx, "queues.lead", {"worker_id": "w1"})

    found = {row["check_name"]: row["level"] for row in health(tx)}
    assert set(found.values()) == {"green"}
    assert found.keys() >= SERVER | {"workers", "expired_leases"}


def test_the_worst_comes_first(tx: Connection, clock: Clock) -> None:
    enqueue(tx, "slow.work")
    answer(tx, "queues.pause", {"queue": "other"})
    clock.advance(601)

    levels = [row["level"] for row in health(tx)]
    assert (levels[0], levels[-1]) == ("red", "green")
    assert levels == sorted(levels, key=["red", "amber", "green"].index)


@pytest.mark.parametrize(("waited", "expected"), [(59, "green"), (60, "amber"), (600, "red")])
def test_a_task_that_waits_too_long(tx: Connection, clock: Clock, waited: float, expected: str) -> None:
    enqueue(tx, "slow.work")
    enqueue(tx, "slow.other", priority=5, run_at=clock.after(30))
    enqueue(tx, "later.work", run_at=clock.after(86400))
    clock.advance(waited)
    register(tx, queues=["slow"])

    found = line(tx, "oldest_due", "slow")
    assert (found["level"], found["value"]) == (expected, waited)
    assert not [row for row in health(tx) if row["subject"] == "later"]
    assert "unserved" not in checks(tx)


@pytest.mark.parametrize("others", [0, 3])
def test_a_task_that_waits_for_its_key_is_not_told_to_want_more_workers(
    tx: Connection, clock: Clock, others: int
) -> None:
    register(tx, queues=["shop"], timeout="1 day")
    enqueue_many(tx, [{"type": "shop.ship", "concurrency_key": "order-7"}] * 2)
    claim(tx, max_tasks=2, queues=["shop"], lease="1 day")
    clock.advance(60)
    enqueue_many(tx, [{"type": "shop.pack"}] * others)
    clock.advance(60)

    advice = line(tx, "oldest_due", "shop")["advice"]
    held = "the oldest due task" if others else "all due tasks"
    assert advice.startswith(f"Limits hold back {held}: ")
    assert "order-7" in advice


@pytest.mark.parametrize(
    ("subscription", "told"),
    [
        ({"queues": ["other"]}, True),
        ({"queues": ["mail"]}, False),
        ({"type_prefixes": ["mail."]}, False),
        ({"type_prefixes": ["mail.a"]}, True),
    ],
)
def test_a_queue_that_nobody_serves(
    tx: Connection, clock: Clock, subscription: dict[str, Any], told: bool
) -> None:
    enqueue(tx, "mail.send")
    clock.advance(60)
    register(tx, **subscription)

    assert ("unserved" in checks(tx)) == told
    if told:
        found = line(tx, "unserved", "mail")
        assert (found["level"], "--queues mail" in found["advice"]) == ("red", True)


def test_a_worker_that_is_silent_serves_nobody(tx: Connection, clock: Clock) -> None:
    register(tx, queues=["mail"])
    clock.advance(61)
    enqueue(tx, "mail.send")
    clock.advance(10)

    assert level(tx, "unserved", "mail") == "amber"
    found = line(tx, "silent_worker", "w1")
    assert (found["level"], found["value"]) == ("red", 71)
    assert "0 live workers" in line(tx, "workers")["message"]


def test_a_paused_queue(tx: Connection, clock: Clock) -> None:
    enqueue(tx, "mail.send")
    call(tx, "queues.pause", {"queue": "mail", "reason": "the provider is down"})
    clock.advance(700)

    found = line(tx, "paused_queue", "mail")
    assert (found["level"], found["value"]) == ("amber", 700)
    assert "the provider is down" in found["message"]
    assert not {"oldest_due", "unserved"} & checks(tx)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"rate": 1, "per": "1 day"}, "type mail.send has used up its rate"),
        ({"max_running": 1}, "at most 1 may run at once"),
    ],
)
def test_tasks_that_only_a_limit_holds_back_are_amber_and_the_finding_names_the_limit(
    tx: Connection, clock: Clock, limit: dict[str, Any], said: str
) -> None:
    register(tx, queues=["mail"], timeout="1 day")
    call(tx, "queues.set_limit", {"subject": "type", "name": "mail.send", **limit})
    enqueue_many(tx, [{"type": "mail.send"}] * 3)
    claim(tx, max_tasks=3, queues=["mail"], lease="1 day")
    clock.advance(7200)

    found = line(tx, "oldest_due", "mail")
    assert found["level"] == "amber"
    assert "mail.send" in found["message"]
    assert said in found["message"]
    enqueue(tx, "mail.other")
    clock.advance(7200)
    assert level(tx, "oldest_due", "mail") == "red"  # nothing holds that one back


def test_a_queue_that_was_just_resumed_has_no_delay(tx: Connection, clock: Clock) -> None:
    register(tx, queues=["mail"], timeout="1 day")
    call(tx, "queues.pause", {"queue": "mail", "reason": "the provider is down"})
    enqueue(tx, "mail.send")
    clock.advance(7200)
    call(tx, "queues.resume", {"queue": "mail"})
    end(tx, claim_one(tx, queues=["mail"]))

    assert level(tx, "delay_p99", "mail") == "green"
    assert {row["level"] for row in health(tx) if row["subject"] == "mail"} == {"green"}


def test_a_delay_under_a_limit_is_not_red(tx: Connection, clock: Clock) -> None:
    call(tx, "queues.set_limit", {"subject": "queue", "name": "mail", "rate": 1, "per": "1 hour"})
    enqueue(tx, "mail.send")
    clock.advance(7200)
    end(tx, claim_one(tx, queues=["mail"]))

    found = line(tx, "delay_p99", "mail")
    assert (found["level"], "holdfast limits" in found["advice"]) == ("amber", True)


def test_how_long_tasks_waited(tx: Connection, clock: Clock) -> None:
    enqueue_many(tx, [{"type": "mail.send"}] * 99)
    clock.advance(2)
    for task in claim(tx, max_tasks=99, queues=["mail"]):
        end(tx, task)
    enqueue(tx, "mail.send")
    clock.advance(100)
    end(tx, claim_one(tx, queues=["mail"]))

    assert line(tx, "delay_p50", "mail")["value"] == 2
    found = line(tx, "delay_p99", "mail")
    assert (found["level"], 2 < found["value"] < 100) == ("green", True)
    assert "100 tasks" in found["message"]
    clock.advance(300)
    assert "delay_p50" not in checks(tx)


def test_a_task_that_was_put_off_did_not_wait(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, "mail.send")
    clock.advance(5)
    act(tx, "reschedule", task_id, run_at=clock.after(3600))
    clock.advance(3600)
    end(tx, claim_one(tx, queues=["mail"]))

    assert "delay_p99" not in checks(tx)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        *[((1, 0, 0), "green"), ((5, 0, 0), "amber"), ((5, 0, 4), "amber"), ((5, 0, 5), "green")],
        *[((0, 1, 0), "amber"), ((0, 1, 19), "amber"), ((0, 1, 20), "green"), ((0, 2, 98), "green")],
        *[((0, 4, 0), "amber"), ((0, 5, 5), "red"), ((0, 5, 6), "amber"), ((0, 20, 0), "red")],
    ],
)
def test_a_type_that_fails(tx: Connection, clock: Clock, counts: tuple[int, int, int], expected: str) -> None:
    retried, failed, succeeded = counts
    enqueue_many(tx, [{"type": "mail.send"}] * (retried + failed + succeeded))
    endings = ["retry"] * retried + ["failed"] * failed + ["succeeded"] * succeeded
    for task, status in zip(claim(tx, max_tasks=100, queues=["mail"]), endings, strict=True):
        error = None if status == "succeeded" else {"kind": "Boom", "message": "no route"}
        end(tx, task, status, error=error)

    found = line(tx, "failing_type", "mail.send")
    share = failed / (failed + succeeded) if failed + succeeded else 0
    assert (found["level"], found["value"]) == (expected, share)
    assert "Latest error: no route" in found["message"]
    clock.advance(601)
    assert "failing_type" not in checks(tx)


@pytest.mark.parametrize(("reported", "expected"), [(False, "amber"), (True, "green")])
def test_a_few_failures_among_many_successes_are_not_red_however_many_other_tasks_ended_since(
    tx: Connection, clock: Clock, reported: bool, expected: str
) -> None:
    enqueue_many(tx, [{"type": "shop.pay"}] * 20)
    for task in claim(tx, max_tasks=20, queues=["shop"]):
        end(tx, task, "failed", error={"kind": "Boom", "message": "card declined"})
    enqueue_many(tx, [{"type": "mail.send"}] * 2001)
    held = claim(tx, max_tasks=2001, queues=["mail"])
    finish(tx, [{"task_id": one["task_id"], "token": one["token"], "status": "succeeded"} for one in held])
    if reported:
        tx.execute(
            """insert into queues.activity (at, period, queue, type, succeeded, failed)
               values (date_trunc('minute', queues.clock()), 1, 'shop', 'shop.pay', 980, 20)"""
        )

    found = line(tx, "failing_type", "shop.pay")
    assert (found["level"], "20 of the last 1000 tasks" in found["message"]) == (expected, reported)


@pytest.mark.parametrize(("late", "expected"), [(5, "green"), (10, "amber"), (60, "red")])
def test_leases_that_nobody_sweeps(tx: Connection, clock: Clock, late: float, expected: str) -> None:
    enqueue(tx)
    claim_one(tx, lease="30 seconds")
    clock.advance(30 + late)

    found = line(tx, "expired_leases")
    assert (found["level"], found["value"]) == (expected, 1)


def test_a_worker_that_was_lost(tx: Connection, clock: Clock) -> None:
    register(tx)
    enqueue(tx)
    claim_one(tx, lease="1 hour")
    clock.advance(61)
    call(tx, "queues.recover_workers", {})

    found = line(tx, "lost_worker", "w1")
    assert (found["level"], "1 of its tasks went back" in found["message"]) == ("amber", True)
    assert "silent_worker" not in checks(tx)
    clock.advance(3601)
    assert "lost_worker" not in checks(tx)


def test_a_lost_worker_is_told_of_with_what_a_sweep_had_put_back_before(tx: Connection, clock: Clock) -> None:
    register(tx)
    enqueue_many(tx, [{"type": "default.work", "max_attempts": 1}, *[{"type": "default.work"}] * 3])
    claim(tx, "w1", max_tasks=3, lease="10 seconds")
    claim(tx, "w1", max_tasks=1, lease="1 hour")
    clock.advance(11)
    call(tx, "queues.sweep", {})
    clock.advance(50)
    call(tx, "queues.recover_workers", {})

    told = line(tx, "lost_worker", "w1")["message"]
    assert "3 of its tasks went back to the queue, and 1 ended" in told


def test_a_worker_whose_heartbeats_stop_is_late_long_before_it_counts_as_dead(
    tx: Connection, clock: Clock
) -> None:
    register(tx, heartbeat="10 seconds")
    states = []
    for seconds in (20, 1, 38, 1):
        clock.advance(seconds)
        states.append(value(tx, "select state from queues.worker_status"))
        assert ("late_worker" in checks(tx)) == (states[-1] == "late")
    assert states == ["idle", "late", "late", "silent"]


def test_a_fleet_without_a_leader(tx: Connection, clock: Clock) -> None:
    register(tx)
    assert level(tx, "leader") == "amber"

    answer(tx, "queues.lead", {"worker_id": "w1"})
    assert "leader" not in checks(tx)


@pytest.mark.parametrize(("late", "expected"), [(5, None), (29, "green"), (30, "amber"), (300, "red")])
def test_a_schedule_that_is_late(tx: Connection, clock: Clock, late: float, expected: str | None) -> None:
    schedules.add(tx)
    schedules.plan(tx, schedules.at(13))
    clock.advance(3600 + late)

    if expected is None:
        assert "late_schedule" not in checks(tx)
    else:
        assert level(tx, "late_schedule", "nightly") == expected


def test_a_schedule_that_nobody_plans(tx: Connection, clock: Clock) -> None:
    schedules.add(tx)
    clock.advance(300)

    assert level(tx, "late_schedule", "nightly") == "red"


def test_schedules_that_do_not_fire(tx: Connection, clock: Clock) -> None:
    for name in ("a", "b", "c"):
        schedules.add(tx, name)
    schedules.plan(tx, "infinity", "a", problem="no such zone")
    call(tx, "queues.pause_schedule", {"name": "b", "reason": "holidays"})
    schedules.declare(tx, schedules.element("d"))
    schedules.declare(tx)

    assert level(tx, "broken_schedule", "a") == "red"
    assert "no such zone" in line(tx, "broken_schedule")["message"]
    assert "holidays" in line(tx, "paused_schedule", "b")["message"]
    assert level(tx, "orphaned_schedule", "d") == "amber"


@pytest.mark.parametrize(("waited", "expected"), [(5, "green"), (60, "amber"), (600, "red")])
def test_events_that_wait(tx: Connection, clock: Clock, waited: float, expected: str) -> None:
    subscribe(tx, "crm")
    assert "has all its events" in line(tx, "outbox", "crm")["message"]
    emit(tx)
    clock.advance(waited)

    found = line(tx, "outbox", "crm")
    assert (found["level"], found["value"]) == (expected, waited)
    assert ("1 event waits" in found["message"], "no dispatcher" in found["message"]) == (True, True)


def test_a_paused_subscription_is_amber_however_long_its_events_wait(tx: Connection, clock: Clock) -> None:
    subscribe(tx, "crm")
    emit(tx)
    call(tx, "queues.pause_subscription", {"name": "crm", "reason": "they move"})
    clock.advance(86400)
    assert level(tx, "outbox", "crm") == "amber"


def test_a_receiver_that_fails_is_amber_at_once(tx: Connection, clock: Clock) -> None:
    subscribe(tx, "crm")
    emit(tx)
    clock.advance(1)
    tx.execute("update queues.breaker set open_until = queues.clock(), last_error = 'HTTP 500'")
    found = line(tx, "outbox", "crm")
    assert (found["level"], "HTTP 500" in found["message"]) == ("amber", True)


def test_a_full_outbox(tx: Connection, clock: Clock) -> None:
    subscribe(tx, "crm")
    tx.execute(
        """insert into queues.delivery (subscription_id, aggregate_id, event_number, event_id, emitted_at,
             due_at, attempt, counted)
           select s.subscription_id, n, n, gen_random_uuid(), queues.clock(), queues.clock(), 0, false
           from queues.subscription s, generate_series(1, 10001) n"""
    )

    found = line(tx, "outbox", "crm")
    assert (found["level"], "10000 or more events wait" in found["message"]) == ("red", True)


def test_events_that_were_given_up(tx: Connection, clock: Clock) -> None:
    subscribe(tx, "crm")
    tx.execute(
        """insert into queues.dead_delivery (event_id, subscription_id, died_at, attempt)
           select gen_random_uuid(), s.subscription_id, queues.clock(), 20 from queues.subscription s"""
    )

    found = line(tx, "dead_events", "crm")
    assert (found["level"], found["value"]) == ("amber", 1)


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
        assert "idle in transaction: select queues.enqueue('mail.send')" in found["message"]
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
    assert "hidden" in found["message"]
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


def test_every_line_that_is_not_green_says_what_to_do(tx: Connection, clock: Clock) -> None:
    enqueue(tx, "mail.send")
    enqueue(tx, "work.x")
    end(tx, claim_one(tx, queues=["work"]), "failed")
    call(tx, "queues.pause", {"queue": "other"})
    register(tx, "w9")
    schedules.add(tx)
    subscribe(tx, "crm")
    emit(tx)
    clock.advance(599)

    troubled = [row for row in health(tx) if row["level"] != "green"]
    assert len(troubled) >= 6
    assert [row for row in troubled if not row["advice"]] == []
    assert [row for row in health(tx) if not row["message"]] == []


def test_who_may_ask(db: Database) -> None:
    for role in ("holdfast_reader", "holdfast_operator"):
        assert health(db.connect(role))


@pytest.mark.parametrize(
    ("days", "level_then"), [(7, None), (7 + 1 / 48, None), (7.1, "amber"), (8.1, "red")]
)
def test_retention_that_is_behind_is_told(
    tx: Connection, clock: Clock, days: float, level_then: str | None
) -> None:
    enqueue(tx)
    end(tx, claim_one(tx))
    clock.advance(days * 86400)

    found = [row for row in health(tx) if row["check_name"] == "retention"]

    assert [row["level"] for row in found] == ([] if level_then is None else [level_then])
    if found:
        assert found[0]["message"].startswith("1 succeeded task should have been deleted more than")


def test_retention_is_not_behind_when_its_policy_has_just_changed(tx: Connection, clock: Clock) -> None:
    enqueue(tx)
    end(tx, claim_one(tx))
    clock.advance(6 * 86400)

    call(tx, "queues.set_retention", {"status": "succeeded", "keep": "1 day"})

    assert "retention" not in checks(tx)


def test_a_clock_that_was_set_back_is_found(tx: Connection, clock: Clock) -> None:
    register(tx)
    assert "clock" not in checks(tx)
    clock.advance(-3600)
    found = line(tx, "clock")
    assert (found["level"], found["value"]) == ("amber", 3600)
