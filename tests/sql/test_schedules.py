"""Adding, declaring, pausing and removing schedules."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, call, change_setting, end, refused, rows
from support.engine import claim_one as claim
from support.schedules import (
    NAME,
    add,
    at,
    decide,
    declare,
    due,
    element,
    events,
    fire,
    firings,
    plan,
    row_of,
    run,
    schedule,
    tasks,
    version,
)


@contextmanager
def told(code: str) -> Iterator[None]:
    with pytest.raises(psycopg.Error) as caught:
        yield
    assert caught.value.sqlstate == code


def test_an_added_schedule_waits_to_be_planned(tx: Connection, clock: Clock) -> None:
    assert add(tx, cron="0 9 * * mon-fri", tz="Europe/Berlin", payload={"n": 1}) == "added"

    found = schedule(tx)
    assert (found["state"], found["cron"], found["tz"]) == ("active", "0 9 * * mon-fri", "Europe/Berlin")
    assert (found["next_at"], found["never"], found["type"]) == (None, False, "report.make")
    (wanted,) = due(tx)
    assert (wanted["name"], wanted["plan_from"], wanted["now"]) == (NAME, clock.now, clock.now)
    assert events(tx) == ["added"]


def test_adding_the_same_again_changes_nothing(tx: Connection) -> None:
    add(tx, payload={"n": 1})
    before = version(tx)

    assert add(tx, payload={"n": 1}) == "unchanged"
    assert version(tx) == before


@pytest.mark.parametrize("other", [{"cron": "5 * * * *"}, {"payload": {"n": 2}}, {"overlap": "skip"}])
def test_a_name_stands_for_one_schedule(tx: Connection, other: dict[str, Any]) -> None:
    add(tx)
    with refused(tx, "QF409", NAME):
        add(tx, **other)


def test_an_interval_is_anchored_on_a_monday(tx: Connection) -> None:
    add(tx, every=timedelta(days=7))

    assert schedule(tx)["every"] == timedelta(days=7)
    assert schedule(tx)["anchor"] == datetime(2001, 1, 1, tzinfo=UTC)
    assert schedule(tx)["anchor"].weekday() == 0


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no time at all": ({"cron": None}, "cron or every"),
    "two kinds of times": ({"cron": "0 * * * *", "every": "1 hour"}, "cron or every"),
    "four fields": ({"cron": "0 * * *"}, "cron"),
    "six fields": ({"cron": "0 0 * * * *"}, "cron"),
    "a cron of nonsense": ({"cron": "0 0 * * ;"}, "cron"),
    "a zone of nonsense": ({"tz": "Europe Berlin"}, "tz"),
    "an interval too short": ({"every": "0.5 seconds"}, "every"),
    "an interval too long": ({"every": "3651 days"}, "every"),
    "an interval backwards": ({"every": "-1 hour"}, "every"),
    "an interval of the calendar": ({"every": "1 month"}, "every"),
    "an anchor of another age": ({"every": "1 hour", "anchor": "0044-03-15 BC"}, "anchor"),
    "an unknown policy": ({"catch_up": "some"}, "catch_up"),
    "a limit of nothing": ({"catch_up_limit": 0}, "catch_up_limit"),
    "a limit too high": ({"catch_up_limit": 1001}, "catch_up_limit"),
    "an unknown overlap": ({"overlap": "queue"}, "overlap"),
    "a jitter too long": ({"jitter": "25 hours"}, "jitter"),
    "a jitter backwards": ({"jitter": "-1 second"}, "jitter"),
    "no name": ({"name": None}, "name"),
    "a name with a space": ({"name": "every night"}, "name"),
    "a type of nonsense": ({"type": "a..b"}, "type"),
    "a queue of nonsense": ({"queue": "a b"}, "queue"),
    "an unknown executor": ({"executor": "cobol"}, "executor"),
    "metadata that is none": ({"metadata": [1]}, "metadata"),
    "too many attempts": ({"max_attempts": 1001}, "max_attempts"),
    "a timeout too long": ({"timeout": "31 days"}, "timeout"),
    "a lease too short": ({"lease": "0.1 seconds"}, "lease"),
}


@pytest.mark.parametrize("given", REFUSED)
def test_what_could_not_be_kept_is_refused(tx: Connection, given: str) -> None:
    arguments, field = REFUSED[given]
    with refused(tx, "QF400", field):
        add(tx, **arguments)


def test_a_payload_over_the_limit_is_refused(tx: Connection) -> None:
    change_setting(tx, "max_payload_bytes", 5000)
    with refused(tx, "QF413", "payload"):
        add(tx, payload={"text": "x" * 5000})


def test_metadata_leaves_room_for_what_is_added_to_it(tx: Connection) -> None:
    with refused(tx, "QF413", "metadata"):
        add(tx, metadata={"text": "x" * 16360})


def test_a_client_may_not_schedule_what_acts_with_the_rights_of_the_database(db: Database) -> None:
    client, process = db.connect("holdfast_client"), db.connect("holdfast_process")
    with told("QF403"):
        add(client, executor="db_function", payload={"function": "shop.close"})

    assert add(process, executor="db_function", payload={"function": "shop.close"}) == "added"
    assert add(client, "other") == "added"


def test_a_client_may_declare_what_it_may_enqueue(db: Database) -> None:
    client = db.connect("holdfast_client")
    with told("QF403"):
        declare(client, element(task={"type": "a.b", "executor": "email"}))

    assert declare(client, element()) == {NAME: "added"}


@pytest.mark.parametrize("making", [add, lambda conn: declare(conn, element()), run])
def test_a_worker_can_neither_make_a_schedule_nor_run_one_by_hand(db: Database, making: Any) -> None:
    add(db.connect("holdfast_client"), "theirs")
    with told("42501"):
        making(db.connect("holdfast_worker"))


@pytest.mark.parametrize(
    ("recurrence", "planned_at", "code"),
    [
        ({"cron": "0 0 1 1 *"}, at(12), "QF400"),
        ({"cron": "0 0 1 1 *"}, at(11), "QF400"),
        ({"cron": "0 0 1 1 *"}, at(13) + timedelta(seconds=30), "QF400"),
        ({"every": "1 day"}, at(13), "QF400"),
        ({"every": "1 day"}, at(0), "QF400"),
    ],
)
def test_a_worker_plans_later_times_that_the_schedule_can_have(
    db: Database, recurrence: dict[str, str], planned_at: datetime, code: str
) -> None:
    admin, worker = db.connect(), db.connect("holdfast_worker")
    Clock(admin)
    add(db.connect("holdfast_client"), **recurrence)
    with told(code):
        decide(worker, {"name": NAME, **row_of(admin), "next_at": planned_at})

    assert due(worker)[0]["plan_from"] == at(12)


@pytest.mark.parametrize("problem", [None, "no reason at all"])
def test_a_worker_does_not_plan_what_is_planned_already(db: Database, problem: str | None) -> None:
    admin, worker = db.connect(), db.connect("holdfast_worker")
    Clock(admin)
    add(db.connect("holdfast_client"), cron="0 0 1 1 *")
    decide(worker, {"name": NAME, **row_of(admin), "next_at": at(18)})

    sooner = {"name": NAME, **row_of(admin), "next_at": at(12, 1), "problem": problem}
    assert decide(worker, sooner) == []
    assert schedule(admin)["next_at"] == at(18)


def test_a_schedule_belongs_to_the_login_that_made_it(db: Database) -> None:
    client, operator = db.connect("holdfast_client"), db.connect("holdfast_operator")
    add(db.connect("holdfast_process"), "theirs")
    add(client, "mine")
    seen = [row["name"] for row in rows(client, "select name from queues.schedule_status")]

    assert seen == ["mine"]
    for function in ("pause_schedule", "resume_schedule", "run_schedule", "remove_schedule"):
        with told("QF404"):
            call(client, f"queues.{function}", {"name": "theirs"})
    assert call(operator, "queues.pause_schedule", {"name": "theirs"}) == [{"pause_schedule": True}]
    assert run(client, "mine").version == 7


def test_a_missing_schedule_is_named_with_the_namespace_that_was_given(tx: Connection) -> None:
    for namespace, told_at_the_end in (
        (None, 'no schedule "x"'),
        ("shop", 'no schedule "x" in namespace "shop"'),
    ):
        with pytest.raises(psycopg.Error) as raised, tx.transaction():
            call(tx, "queues.run_schedule", {"name": "x", "namespace": namespace})
        assert str(raised.value.diag.message_primary).endswith(told_at_the_end)


def test_a_task_is_enqueued_in_the_name_of_whoever_made_the_schedule(db: Database) -> None:
    client, worker, admin = db.connect("holdfast_client"), db.connect("holdfast_worker"), db.connect()
    clock = Clock(admin)
    add(client)
    [wanted] = due(worker)
    given = {"name": NAME, "namespace": wanted["namespace"], "version": wanted["version"], "next_at": at(13)}
    decide(worker, given)
    clock.set(at(13))
    given |= {"version": wanted["version"] + 1, "times": [at(13)], "next_at": at(14)}
    (fired,) = decide(worker, given)

    (task,) = rows(client, "select * from queues.task_status")
    assert (task["task_id"], task["enqueued_by"]) == (fired["task_id"], "holdfast_client_login")


def test_a_declaration_is_idempotent(tx: Connection) -> None:
    assert declare(tx, element("a"), element("b")) == {"a": "added", "b": "added"}
    before = [version(tx, "a"), version(tx, "b")]

    assert declare(tx, element("b"), element("a")) == {"a": "unchanged", "b": "unchanged"}
    assert [version(tx, "a"), version(tx, "b")] == before


def test_a_declaration_that_leaves_the_times_alone_leaves_the_next_one_alone(
    tx: Connection, clock: Clock
) -> None:
    declare(tx, element())
    plan(tx, at(13))
    clock.advance(60)

    assert declare(tx, element(task={"type": "report.make", "payload": {"new": True}})) == {NAME: "changed"}
    assert schedule(tx)["next_at"] == at(13)


def test_a_declaration_of_other_times_is_planned_anew(tx: Connection, clock: Clock) -> None:
    declare(tx, element())
    plan(tx, at(13))
    clock.advance(60)

    declare(tx, element(cron="30 * * * *"))
    assert schedule(tx)["next_at"] is None
    assert due(tx)[0]["plan_from"] == clock.now


def test_what_left_the_code_is_orphaned_and_does_not_fire(tx: Connection, clock: Clock) -> None:
    declare(tx, element("a"), element("b"))
    plan(tx, at(12), "a")
    plan(tx, at(12), "b")

    assert declare(tx, element("a")) == {"a": "unchanged", "b": "orphaned"}
    assert (schedule(tx, "a")["state"], schedule(tx, "b")["state"]) == ("active", "orphaned")
    assert [one["name"] for one in due(tx)] == ["a"]
    assert fire(tx, at(12), name="b") == []
    assert declare(tx, element("a")) == {"a": "unchanged"}


def test_an_orphan_that_comes_back_goes_on_from_now(tx: Connection, clock: Clock) -> None:
    declare(tx, element())
    plan(tx, at(13))
    declare(tx)
    clock.set(at(18))

    assert declare(tx, element()) == {NAME: "changed"}
    assert schedule(tx)["state"] == "active"
    assert due(tx)[0]["plan_from"] == at(18)


def test_applications_do_not_touch_the_schedules_of_others(tx: Connection) -> None:
    add(tx, "by_hand")
    declare(tx, element("a"), application="one")
    before = version(tx, "a"), version(tx, "by_hand")

    other = element("a", cron="5 * * * *"), element("by_hand", cron="5 * * * *")
    assert declare(tx, *other, application="two") == {"a": "taken", "by_hand": "taken"}
    assert declare(tx, application="two") == {}
    assert (version(tx, "a"), version(tx, "by_hand")) == before


def test_an_application_takes_over_what_another_has_left(tx: Connection) -> None:
    declare(tx, element(), application="one")
    declare(tx, application="one")

    assert declare(tx, element(), application="two") == {NAME: "changed"}
    assert schedule(tx)["declared_by"] == "two"


@pytest.mark.parametrize(
    ("schedules", "part"),
    [
        ({"name": "a"}, "schedules must be an array"),
        ([element("a"), element("a")], "same name"),
        ([element("a"), element("b", colour="red")], "schedules[1]."),
        ([element("a", task=None)], "schedules[0].task"),
        ([element("a", task={"type": "a", "run_at": "2030-01-01"})], "run_at"),
        ([element("a", task={"type": "a", "idempotency_key": "k"})], "idempotency_key"),
    ],
)
def test_a_declaration_is_refused_as_a_whole(tx: Connection, schedules: Any, part: str) -> None:
    with refused(tx, "QF400", part):
        call(tx, "queues.declare_schedules", {"application": "shop", "schedules": schedules})


def test_a_paused_schedule_is_not_due_and_does_not_fire(tx: Connection, clock: Clock) -> None:
    add(tx)
    plan(tx, at(12))

    assert call(tx, "queues.pause_schedule", {"name": NAME, "reason": "maintenance"})
    found = schedule(tx)
    assert (found["state"], found["pause_reason"]) == ("paused", "maintenance")
    assert due(tx) == []
    assert fire(tx, at(12)) == []
    assert not plan(tx, at(13))


def test_what_passed_during_a_pause_is_not_caught_up(tx: Connection, clock: Clock) -> None:
    add(tx, catch_up="all")
    plan(tx, at(13))
    call(tx, "queues.pause_schedule", {"name": NAME})
    clock.set(at(18))

    call(tx, "queues.resume_schedule", {"name": NAME})
    (wanted,) = due(tx)
    assert (wanted["plan_from"], wanted["next_at"]) == (at(18), None)
    assert schedule(tx)["state"] == "active"


def test_pausing_and_resuming_twice_says_so(tx: Connection) -> None:
    add(tx)
    given = {"name": NAME}
    said = [
        call(tx, f"queues.{function}", given)[0][function]
        for function in ("resume_schedule", "pause_schedule", "pause_schedule", "resume_schedule")
    ]

    assert said == [False, True, False, True]
    assert events(tx) == ["added", "paused", "resumed"]


def test_a_removed_schedule_leaves_its_tasks(tx: Connection, clock: Clock) -> None:
    add(tx)
    plan(tx, at(12))
    fire(tx, at(12))
    call(tx, "queues.remove_schedule", {"name": NAME, "reason": "enough"})

    assert due(tx) == []
    assert len(tasks(tx)) == 1
    with refused(tx, "QF404", NAME):
        run(tx)


def test_a_schedule_that_is_removed_and_added_again_does_not_fire_again_for_the_same_time(
    tx: Connection, clock: Clock
) -> None:
    add(tx)
    plan(tx, at(12))
    fire(tx, at(12))
    call(tx, "queues.remove_schedule", {"name": NAME})
    add(tx)
    plan(tx, at(12))

    assert fire(tx, at(12)) == []
    assert len(tasks(tx)) == 1


def test_running_by_hand_is_besides_the_times(tx: Connection, clock: Clock) -> None:
    add(tx, jitter="1 hour")
    plan(tx, at(13))
    call(tx, "queues.pause_schedule", {"name": NAME})
    task_id = run(tx, reason="the customer waits")

    (task,) = tasks(tx)
    assert (task["task_id"], task["run_at"]) == (task_id, clock.now)
    assert schedule(tx)["next_at"] == at(13)
    assert firings(tx) == {clock.now: "forced"}
    assert set(events(tx)) == {"added", "paused", "forced"}


def test_a_run_by_hand_counts_for_the_overlap(tx: Connection, clock: Clock) -> None:
    add(tx, overlap="skip")
    plan(tx, at(13))
    run(tx)
    clock.set(at(13))

    assert fire(tx, at(13)) == [(at(13), "overlapped")]
    task = claim(tx, queues=["report"])
    end(tx, task)
    clock.set(at(14))
    assert fire(tx, at(14)) == [(at(14), "fired")]
