"""The decisions on the times of a schedule: once each, by the first caller, by the engine's clock."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, act, answer, call, claim_one, end, refused, rows, value
from support.schedules import (
    NAME,
    add,
    at,
    declare,
    due,
    element,
    fire,
    firings,
    nominal_times,
    plan,
    row_of,
    schedule,
    tasks,
    version,
)
from support.sessions import at_once

NOON = at(12)


def planned(conn: Connection, next_at: datetime = NOON, **arguments: Any) -> None:
    add(conn, **arguments)
    assert plan(conn, next_at)


def test_a_due_time_becomes_one_task(tx: Connection, clock: Clock) -> None:
    planned(
        tx,
        payload={"n": 1},
        metadata={"mine": True},
        queue="slow",
        priority=3,
        max_attempts=7,
        concurrency_key="c7",
    )

    assert fire(tx, NOON) == [(NOON, "fired")]
    (task,) = tasks(tx)
    assert (task["type"], task["queue"], task["priority"], task["max_attempts"]) == (
        "report.make",
        "slow",
        3,
        7,
    )
    assert (task["payload"], task["run_at"], task["status"]) == ({"n": 1}, NOON, "pending")
    assert (task["metadata"]["mine"], task["concurrency_key"]) == (True, "c7")
    assert datetime.fromisoformat(task["metadata"]["nominal_at"]) == NOON
    found = schedule(tx)
    assert (found["next_at"], found["last_nominal_at"]) == (at(13), NOON)
    assert found["last_task_id"] == task["task_id"]


def test_a_time_that_has_not_come_does_not_fire(tx: Connection, clock: Clock) -> None:
    planned(tx, at(13))

    assert due(tx) == []
    assert fire(tx, at(13)) == []
    assert firings(tx) == {}


def test_a_time_that_the_caller_is_ahead_with_does_not_fire(tx: Connection, clock: Clock) -> None:
    planned(tx, catch_up="all")

    assert fire(tx, NOON, at(13)) == []
    assert (firings(tx), schedule(tx)["next_at"]) == ({}, NOON)


def test_who_decides_on_an_old_version_changes_nothing(tx: Connection, clock: Clock) -> None:
    planned(tx)
    old = version(tx)
    fire(tx, NOON)

    assert fire(tx, NOON, version=old) == []
    stale = {"name": NAME, **row_of(tx), "version": old, "next_at": at(20)}
    assert answer(tx, "queues.plan_schedule", stale) is False
    assert (len(tasks(tx)), schedule(tx)["next_at"]) == (1, at(13))


def test_who_has_read_a_schedule_before_it_was_changed_does_not_fire_it(tx: Connection, clock: Clock) -> None:
    declare(tx, element())
    plan(tx, NOON)
    old = version(tx)
    declare(tx, element(task={"type": "report.make", "payload": {"since": "changed"}}))

    assert fire(tx, NOON, version=old) == []
    assert (firings(tx), schedule(tx)["next_at"]) == ({}, NOON)
    assert fire(tx, NOON) == [(NOON, "fired")]
    assert [task["payload"] for task in tasks(tx)] == [{"since": "changed"}]


@pytest.mark.parametrize(
    ("times", "next_at"),
    [
        ([], at(13)),
        ([None], at(13)),
        ([at(11)], at(13)),
        ([NOON, NOON], at(13)),
        ([at(12, 1), NOON], at(13)),
        ([NOON], NOON),
        ([NOON], at(11)),
        ([NOON], None),
        (None, at(13)),
        ([NOON + timedelta(minutes=n) for n in range(1001)], at(5, day=1) + timedelta(days=31)),
        ([NOON + timedelta(seconds=1)], at(13)),
        ([NOON], at(13) + timedelta(seconds=1)),
    ],
)
def test_times_that_make_no_sense_are_refused(tx: Connection, clock: Clock, times: Any, next_at: Any) -> None:
    planned(tx)
    clock.set(at(12, 30))
    with refused(tx, "QF400", "nominal_times"):
        given = {"name": NAME, **row_of(tx), "nominal_times": times, "next_at": next_at}
        call(tx, "queues.fire_schedule", given)


LATE = [at(9), at(10), at(11), NOON]

CATCHING_UP: dict[str, tuple[dict[str, Any], float, list[datetime], dict[datetime, str]]] = {
    "skip, on time": ({"catch_up": "skip"}, 0, [NOON], {NOON: "fired"}),
    "skip, within the minute": ({"catch_up": "skip"}, 59, [NOON], {NOON: "fired"}),
    "skip, late": ({"catch_up": "skip"}, 61, [NOON], {NOON: "missed"}),
    "skip, after a silence that ended in time": (
        {"catch_up": "skip"},
        5,
        [NOON],
        {at(9): "missed", NOON: "fired"},
    ),
    "skip, after a silence": ({"catch_up": "skip"}, 600, [NOON], {at(9): "missed", NOON: "missed"}),
    "latest, on time": ({"catch_up": "latest"}, 0, [NOON], {NOON: "fired"}),
    "latest, late": ({"catch_up": "latest"}, 3000, [NOON], {NOON: "fired"}),
    "latest, after a silence": ({"catch_up": "latest"}, 600, [NOON], {at(9): "missed", NOON: "fired"}),
    "all, on time": ({"catch_up": "all"}, 0, [NOON], {NOON: "fired"}),
    "all, after a silence": ({"catch_up": "all"}, 600, LATE, dict.fromkeys(LATE, "fired")),
    "all, up to its limit": (
        {"catch_up": "all", "catch_up_limit": 2},
        600,
        LATE[2:],
        {at(9): "missed", at(11): "fired", NOON: "fired"},
    ),
    "all, told of more than its limit": (
        {"catch_up": "all", "catch_up_limit": 2},
        600,
        LATE,
        {at(9): "missed", at(10): "missed", at(11): "fired", NOON: "fired"},
    ),
    "all, one at a time": (
        {"catch_up": "all", "overlap": "skip"},
        600,
        LATE,
        dict.fromkeys(LATE, "overlapped") | {at(9): "fired"},
    ),
}


@pytest.mark.parametrize("case", CATCHING_UP)
def test_catching_up(tx: Connection, clock: Clock, case: str) -> None:
    policy, late_by, told, decided = CATCHING_UP[case]
    planned(tx, min(decided), **policy)
    clock.advance(late_by)

    assert dict(fire(tx, *told)) == decided
    assert firings(tx) == decided
    assert nominal_times(tx) == [time for time, decision in decided.items() if decision == "fired"]
    assert {task["run_at"] for task in tasks(tx)} <= {clock.now}
    assert schedule(tx)["next_at"] == at(13)


def test_jitter_moves_the_task_and_not_the_time(tx: Connection, clock: Clock) -> None:
    tx.execute("select setseed(0.5)")
    planned(tx, catch_up="all", catch_up_limit=1000, jitter="10 minutes", every="1 second")
    clock.advance(99)
    times = [NOON + timedelta(seconds=n) for n in range(100)]
    fire(tx, *times)

    assert nominal_times(tx) == times
    delays = {(task["run_at"] - clock.now).total_seconds() for task in tasks(tx)}
    assert (min(delays) >= 0, max(delays) < 600) == (True, True)
    assert max(delays) - min(delays) > 300
    assert len(delays) == 100


def test_without_overlap_the_next_waits_for_nothing(tx: Connection, clock: Clock) -> None:
    planned(tx)
    fire(tx, NOON)
    clock.set(at(13))

    assert fire(tx, at(13)) == [(at(13), "fired")]


@pytest.mark.parametrize(
    ("becomes", "decision"),
    [
        ("waiting", "overlapped"),
        ("claimed", "overlapped"),
        ("retrying", "overlapped"),
        ("succeeded", "fired"),
        ("failed", "fired"),
        ("cancelled", "fired"),
        ("deleted", "fired"),
        ("removed", "fired"),
    ],
)
def test_a_time_is_skipped_while_the_last_task_is_unfinished(
    tx: Connection, clock: Clock, becomes: str, decision: str
) -> None:
    planned(tx, overlap="skip")
    fire(tx, NOON)
    _let_become(tx, becomes)
    clock.set(at(13))

    assert fire(tx, at(13)) == [(at(13), decision)]
    assert schedule(tx)["next_at"] == at(14)


def _let_become(conn: Connection, state: str) -> None:
    (task,) = tasks(conn)
    match state:
        case "claimed":
            claim_one(conn, queues=["report"], lease="2 hours")
        case "retrying":
            end(conn, claim_one(conn, queues=["report"]), "retry", run_at="2030-01-31T20:00:00Z")
        case "succeeded" | "failed":
            end(conn, claim_one(conn, queues=["report"]), state)
        case "cancelled":
            act(conn, "cancel", task["task_id"])
        case "deleted":
            act(conn, "delete_task", task["task_id"])
        case "removed":
            conn.execute("delete from queues.ready")
            conn.execute("set local holdfast.retention = on")
            conn.execute("delete from queues.task")


def test_a_clock_set_back_makes_no_second_task(tx: Connection, clock: Clock) -> None:
    planned(tx)
    fire(tx, NOON)
    clock.set(at(11, 59))
    (wanted,) = due(tx)

    assert (wanted["plan_from"], wanted["next_at"]) == (at(11, 59), at(13))
    assert fire(tx, NOON) == []
    plan(tx, NOON)
    clock.set(NOON)
    assert fire(tx, NOON) == []
    assert len(tasks(tx)) == 1
    assert schedule(tx)["next_at"] == at(13)


def test_a_clock_that_was_far_ahead_does_not_silence_a_schedule(tx: Connection, clock: Clock) -> None:
    planned(tx)
    clock.advance(365 * 86400)
    last = NOON + timedelta(days=365)
    fire(tx, last, next_at=last + timedelta(hours=1))
    clock.set(at(12, 30))

    (wanted,) = due(tx)
    assert wanted["plan_from"] == at(12, 30)
    assert plan(tx, at(13))
    assert due(tx) == []
    clock.set(at(13))
    assert fire(tx, at(13)) == [(at(13), "fired")]


def test_a_clock_set_forward_is_a_silence_to_catch_up(tx: Connection, clock: Clock) -> None:
    planned(tx, catch_up="all", catch_up_limit=3)
    clock.set(at(18))
    (wanted,) = due(tx)

    assert (wanted["plan_from"], wanted["next_at"], wanted["max_times"]) == (None, NOON, 3)
    fire(tx, at(16), at(17), at(18))
    assert nominal_times(tx) == [at(16), at(17), at(18)]


def test_a_schedule_without_another_time_is_never_due(tx: Connection, clock: Clock) -> None:
    planned(tx)
    fire(tx, NOON, next_at="infinity")

    found = schedule(tx)
    assert (found["next_at"], found["never"], found["state"]) == (None, True, "active")
    clock.advance(3650 * 86400)
    assert due(tx) == []
    assert value(tx, "select queues.next_firing()") is None


def test_a_problem_is_written_down_and_the_time_counts_as_missed(tx: Connection, clock: Clock) -> None:
    planned(tx)
    assert plan(tx, at(13), problem="tz 'Mars/North' is not a time zone")

    found = schedule(tx)
    assert (found["state"], found["problem"]) == ("broken", "tz 'Mars/North' is not a time zone")
    assert firings(tx) == {NOON: "missed"}
    clock.set(at(13))
    fire(tx, at(13))
    assert schedule(tx)["state"] == "active"


def test_how_long_until_something_is_due(tx: Connection, clock: Clock) -> None:
    assert value(tx, "select queues.next_firing()") is None
    add(tx)
    assert value(tx, "select queues.next_firing()") == timedelta(0)
    plan(tx, at(13))
    assert value(tx, "select queues.next_firing()") == timedelta(hours=1)
    clock.advance(3601)
    assert value(tx, "select queues.next_firing()") == timedelta(0)


def test_the_longest_due_comes_first(tx: Connection, clock: Clock) -> None:
    for name, hour in [("b", 9), ("a", 11), ("c", 10)]:
        add(tx, name)
        plan(tx, at(hour), name)

    assert [one["name"] for one in due(tx, max_schedules=2)] == ["b", "c"]


def test_what_was_decided_long_ago_is_forgotten_in_batches(tx: Connection, clock: Clock) -> None:
    planned(tx, catch_up="all", every="1 minute")
    clock.advance(240)
    fire(tx, *(at(12, minute) for minute in range(5)), next_at=at(13))
    clock.advance(7 * 86400 + 1)
    fire(tx, at(13), next_at="infinity")

    assert [value(tx, "select queues.prune_firings(3)") for _ in range(3)] == [3, 2, 0]
    assert firings(tx) == {at(13): "fired"}


def test_the_first_of_two_leaders_decides(db: Database) -> None:
    admin, first, second = db.connect(), db.connect(autocommit=False), db.connect()
    Clock(admin)
    planned(admin)
    given = {"name": NAME, **row_of(admin), "nominal_times": [NOON], "next_at": at(13)}
    call(first, "queues.fire_schedule", given)

    assert call(second, "queues.fire_schedule", given) == []
    first.commit()
    assert call(second, "queues.fire_schedule", given) == []
    assert len(tasks(admin)) == 1


def test_the_second_decides_when_the_first_goes_away(db: Database) -> None:
    admin, first, second = db.connect(), db.connect(autocommit=False), db.connect()
    Clock(admin)
    planned(admin)
    given = {"name": NAME, **row_of(admin), "nominal_times": [NOON], "next_at": at(13)}
    call(first, "queues.fire_schedule", given)

    assert call(second, "queues.fire_schedule", given) == []
    first.rollback()
    assert [row["decision"] for row in call(second, "queues.fire_schedule", given)] == ["fired"]
    assert len(tasks(admin)) == 1


def test_any_number_of_starts_declare_at_once(db: Database) -> None:
    sessions = [db.connect("holdfast_client") for _ in range(6)]
    batch = [
        {"name": f"s{n}", "task": {"type": "a.b"}, "cron": "0 * * * *"} for n in (3, 1, 4, 0, 5, 9, 2, 6)
    ]

    def declare(session: Connection) -> list[str]:
        given = {"application": "shop", "schedules": batch}
        return [row["verdict"] for row in call(session, "queues.declare_schedules", given)]

    told = at_once(declare, sessions)
    assert sorted(verdict for one in told for verdict in one) == ["added"] * 8 + ["unchanged"] * 40
    admin = db.connect()
    assert value(admin, "select count(*) from queues.schedule") == 8
    assert rows(admin, "select distinct version from queues.schedule") == [{"version": 1}]
