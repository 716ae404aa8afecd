"""queues.enqueue: one task, with its defaults, its routing and its guards."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast._worker.handler import build_handler
from holdfast.errors import InvalidHandler
from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    JsonText,
    change_setting,
    claim,
    claim_one,
    counts,
    end,
    enqueue,
    refused,
    status,
    value,
)
from support.refusals import REFUSALS


def test_a_task_has_defaults_for_everything_but_its_type(tx: Connection, clock: Clock) -> None:
    task = status(tx, enqueue(tx, "billing.invoice_charge.v1"))

    assert (task["type"], task["queue"], task["executor"]) == (
        "billing.invoice_charge.v1",
        "billing",
        "python",
    )
    assert (task["status"], task["priority"], task["payload"], task["attempt"]) == ("pending", 0, {}, 0)
    assert (task["max_attempts"], task["timeout"], task["lease"], task["metadata"]) == (3, None, None, None)
    assert (task["created_at"], task["run_at"]) == (clock.now, clock.now)
    assert task["idempotency_key"] is None


def test_what_is_given_is_kept(tx: Connection, clock: Clock) -> None:
    given = {
        "queue": "reports",
        "priority": -7,
        "run_at": clock.after(90),
        "idempotency_key": "k-1",
        "max_attempts": 9,
        "timeout": timedelta(minutes=2),
        "lease": timedelta(seconds=45),
        "executor": "command",
        "metadata": {"trace": "abc"},
        "payload": {"n": 1, "nested": {"ok": [True, None, 1.5, "é"]}},
    }

    task = status(tx, enqueue(tx, "billing.charge", **given))

    assert {name: task[name] for name in given} == given
    assert task["status"] == "scheduled"


@pytest.mark.parametrize(
    ("task_type", "queue"),
    [
        ("billing.invoice_charge.v1", "billing"),
        ("service:nextjs", "service"),
        ("plain", "plain"),
        ("a:b.c", "a"),
        ("a.b:c", "a"),
        ("überweisung.los", "überweisung"),
    ],
)
def test_the_queue_is_the_first_segment_of_the_type(tx: Connection, task_type: str, queue: str) -> None:
    assert status(tx, enqueue(tx, task_type))["queue"] == queue


def test_a_time_in_the_past_is_due_at_once(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, run_at=clock.after(-3600))

    assert status(tx, task_id)["status"] == "pending"
    assert status(tx, task_id)["run_at"] == clock.after(-3600)


def test_the_id_is_a_uuid_of_version_7_and_grows(tx: Connection) -> None:
    ids = [enqueue(tx) for _ in range(50)]

    assert {task_id.version for task_id in ids} == {7}
    assert ids == sorted(ids)
    assert len(set(ids)) == 50


def test_the_login_that_asks_is_recorded(db: Database) -> None:
    client = db.connect("holdfast_client")

    assert status(client, enqueue(client))["enqueued_by"] == "holdfast_client_login"


@pytest.mark.parametrize("executor", ["python", "process", "command", "ray", "db_function", "email", "sms"])
def test_a_payloads_task_type_picks_the_executor(tx: Connection, executor: str) -> None:
    task_id = enqueue(tx, payload={"task_type": executor})

    assert status(tx, task_id)["executor"] == executor


def test_an_executor_that_is_given_wins_over_the_payloads(tx: Connection) -> None:
    task_id = enqueue(tx, payload={"task_type": "email"}, executor="process")

    assert status(tx, task_id)["executor"] == "process"


@pytest.mark.parametrize(
    "payload", [{"task_type": "invoice"}, {"task_type": 7}, {"task_type": None}, ["task_type"], "task_type"]
)
def test_a_task_type_that_is_no_executor_is_the_applications_business(tx: Connection, payload: Any) -> None:
    task = status(tx, enqueue(tx, payload=payload))

    assert (task["executor"], task["payload"]) == ("python", payload)


def test_fields_that_the_engine_does_not_know_pass_through(tx: Connection) -> None:
    payload = {"task_type": "email", "before_handler": "app.before", "x-extra": {"y": [1, 2]}, "": None}

    enqueue(tx, payload=payload)

    assert claim_one(tx)["payload"] == payload


@pytest.mark.parametrize("payload", [0, "text", True, [], {}, 1.5, -(2**63)])
def test_a_payload_may_be_any_json(tx: Connection, payload: Any) -> None:
    assert status(tx, enqueue(tx, payload=payload))["payload"] == payload


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param("[" * 65 + "]" * 65, id="64 levels"),
        pytest.param("[1.7976931348623157e308]", id="the largest double"),
        pytest.param("[2.2250738585072014e-308]", id="the smallest normal double"),
        pytest.param("[5e-324, -4.9406564584124654e-324]", id="the smallest double"),
        pytest.param('["' + "x" * 400 + '", 5e-324]', id="the smallest double in a larger document"),
        pytest.param('{"text": "' + "x" * (262_144 - 12) + '"}', id="256 KiB"),
        pytest.param("[0.0000, -0, 9007199254740993]", id="plain numbers"),
    ],
)
def test_a_payload_at_the_edge_of_what_is_allowed_is_taken(tx: Connection, payload: str) -> None:
    task_id = enqueue(tx, payload=JsonText(payload))

    stored = value(
        tx, "select payload = %s::jsonb from queues.task_status where task_id = %s", [payload, task_id]
    )
    assert stored


@pytest.mark.parametrize(
    ("arguments", "edge"),
    [
        ({"max_attempts": 1}, 1),
        ({"max_attempts": 1000}, 1000),
        ({"priority": 100}, 100),
        ({"priority": -100}, -100),
        ({"timeout": timedelta(milliseconds=1)}, timedelta(milliseconds=1)),
        ({"timeout": timedelta(days=30)}, timedelta(days=30)),
        ({"lease": timedelta(seconds=1)}, timedelta(seconds=1)),
        ({"lease": timedelta(days=1)}, timedelta(days=1)),
        ({"idempotency_key": "k" * 500}, "k" * 500),
        ({"queue": "q" * 200}, "q" * 200),
    ],
)
def test_a_value_at_the_edge_of_what_is_allowed_is_taken(
    tx: Connection, arguments: dict[str, Any], edge: Any
) -> None:
    (name,) = arguments

    assert status(tx, enqueue(tx, **arguments))[name] == edge


@pytest.mark.parametrize(("arguments", "code", "named"), REFUSALS)
def test_what_cannot_be_run_is_refused_with_a_code_and_the_fields_name(
    tx: Connection, arguments: dict[str, Any], code: str, named: str
) -> None:
    with refused(tx, code, named):
        enqueue(tx, **{"type": "default.work", **arguments})


def test_an_infinite_duration_is_refused(tx: Connection) -> None:
    has_them = tx.info.server_version >= 170000  # an older server does not even read one
    for name in ("timeout", "lease"):
        with refused(tx, *(("QF400", name) if has_them else ("22007",))):
            enqueue(tx, **{name: "infinity"})


def test_a_null_character_is_refused_by_the_server_itself(tx: Connection) -> None:
    with refused(tx, "22P05"):
        enqueue(tx, payload=JsonText('{"text": "\\u0000"}'))


def test_many_tiny_numbers_are_refused_without_being_rendered(tx: Connection) -> None:
    zeros = JsonText("[" + ",".join(["0e-16383"] * 20_000) + "]")

    with refused(tx, "QF422", "payload", "number"):
        enqueue(tx, payload=zeros)


def test_the_limit_of_a_payload_can_be_set(tx: Connection) -> None:
    change_setting(tx, "max_payload_bytes", 5000)

    enqueue(tx, payload={"text": "x" * 4988})
    with refused(tx, "QF413", "payload", "5001", "5000"):
        enqueue(tx, payload={"text": "x" * 4989})


def test_a_message_says_what_to_do(tx: Connection) -> None:
    with pytest.raises(psycopg.Error) as caught, tx.transaction():
        enqueue(tx, executor="cobol")

    assert caught.value.diag.message_primary == 'executor "cobol" is unknown'
    assert (
        caught.value.diag.message_hint == "Allowed: command, db_function, email, process, python, ray, sms."
    )


ODD_SETTINGS = {
    "IntervalStyle": "sql_standard",
    "DateStyle": "SQL, DMY",
    "TimeZone": "Asia/Kathmandu",
    "search_path": "pg_temp, pg_catalog",
    "synchronous_commit": "off",
    "default_transaction_isolation": "serializable",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "standard_conforming_strings": "on",
    "plan_cache_mode": "force_custom_plan",
}


def test_the_callers_session_settings_do_not_change_what_is_stored(db: Database) -> None:
    ordinary, odd = db.connect("holdfast_client"), db.connect("holdfast_client")
    for name, setting in ODD_SETTINGS.items():
        odd.execute(f"set {name} = '{setting}'" if name != "search_path" else f"set search_path = {setting}")
    given: dict[str, Any] = {
        "payload": {"n": 1.5, "at": "2030-01-31"},
        "run_at": "2040-12-31T10:20:30.5+02:00",
        "timeout": timedelta(days=1, hours=2, seconds=3.25),
        "lease": timedelta(minutes=5),
    }

    stored = [
        db.connect()
        .execute(
            """select type, run_at, timeout, lease, payload::text, spec_hash from queues.task_status
               where task_id = %s""",
            [enqueue(conn, **given)],
        )
        .fetchone()
        for conn in (ordinary, odd)
    ]

    assert stored[0] == stored[1]


def test_an_enqueue_commits_to_disk_whatever_the_session_says(tx: Connection) -> None:
    tx.execute("set local synchronous_commit = off")

    enqueue(tx)

    assert value(tx, "show synchronous_commit") == "on"


@pytest.mark.parametrize("level", ["local", "remote_write", "on", "remote_apply"])
def test_an_enqueue_never_lowers_the_durability_of_its_transaction(tx: Connection, level: str) -> None:
    tx.execute(f"set local synchronous_commit = {level}".encode())

    enqueue(tx)

    assert value(tx, "show synchronous_commit") == ("remote_apply" if level == "remote_apply" else "on")


def test_an_enqueue_that_is_rolled_back_leaves_nothing(db: Database) -> None:
    client, admin = db.connect("holdfast_client", autocommit=False), db.connect()
    before = counts(admin)

    enqueue(client, idempotency_key="k")
    client.rollback()

    assert counts(admin) == before
    assert claim(db.connect("holdfast_worker")) == []


def test_a_type_that_nobody_has_heard_of_needs_no_change_of_the_schema(tx: Connection) -> None:
    objects = """select array_agg(c.relname || '.' || coalesce(a.attname, '') order by c.relname, a.attnum)
      from pg_class c left join pg_attribute a on a.attrelid = c.oid
      where c.relnamespace = 'queues'::regnamespace"""
    before = value(tx, objects)

    task_id = enqueue(tx, "new-idea.try-out:v7", payload={"any": ["thing"]})
    task = claim_one(tx, queues=["new-idea"])
    end(tx, task, result={"fine": True})

    assert (task["type"], status(tx, task_id)["result"]) == ("new-idea.try-out:v7", {"fine": True})
    assert value(tx, objects) == before


NAMES = (
    *("add", "a.b", "a:b.c", "täsk.ß", "My", "a!", "x" * 200),
    *("My Task!", "", "a..b", ".a", "a.", "a:", "a b", "a\tb", "a\u200bb", "a\u3000b", "x" * 201, "é" * 101),
)


@pytest.mark.parametrize("name", NAMES)
def test_an_application_and_the_engine_accept_the_same_types(tx: Connection, name: str) -> None:
    def is_accepted() -> bool:
        try:
            build_handler(name, _nothing)
        except InvalidHandler:
            return False
        return True

    if is_accepted():
        enqueue(tx, name)
    else:
        with refused(tx, "QF400"):
            enqueue(tx, name)


def _nothing() -> None:
    """A handler."""


def test_a_payload_that_is_too_large_is_refused_with_what_to_do(tx: Connection) -> None:
    with pytest.raises(psycopg.Error) as caught, tx.transaction():
        enqueue(tx, payload={"x": "x" * 300_000})
    assert caught.value.sqlstate == "QF413"
    assert "pass a reference" in (caught.value.diag.message_hint or "")
