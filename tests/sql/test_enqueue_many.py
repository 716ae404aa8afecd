"""queues.enqueue_many: a batch, all or nothing, answered in its order."""

import json
from datetime import timedelta
from typing import Any

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    JsonText,
    change_setting,
    claim,
    counts,
    enqueue,
    enqueue_many,
    refused,
    rows,
    status,
    value,
)
from support.refusals import REFUSALS


def _task(**members: Any) -> str:
    """One element as JSON text; what is JSON text already is put in as it stands."""
    parts = (
        f"{json.dumps(name)}: {member if isinstance(member, JsonText) else json.dumps(member)}"
        for name, member in members.items()
    )
    return "{" + ", ".join(parts) + "}"


def _batch(*tasks: str) -> JsonText:
    return JsonText("[" + ", ".join(tasks) + "]")


def test_the_answers_come_in_the_order_of_the_batch(tx: Connection) -> None:
    names = [f"{'abc'[n % 3]}.type{n}" for n in range(30)]

    answers = enqueue_many(tx, [{"type": name, "priority": n % 5} for n, name in enumerate(names)])

    assert [status(tx, answer["task_id"])["type"] for answer in answers] == names
    assert [answer["created"] for answer in answers] == [True] * 30


def test_the_ids_of_a_batch_grow_in_its_order(tx: Connection) -> None:
    ids = [answer["task_id"] for answer in enqueue_many(tx, [{"type": "default.work"}] * 300)]

    assert ids == sorted(set(ids))
    assert {task_id.version for task_id in ids} == {7}


def test_batches_one_after_the_other_share_no_id(tx: Connection) -> None:
    ids = [answer["task_id"] for _ in range(50) for answer in enqueue_many(tx, [{"type": "a.b"}] * 3)]

    assert ids == sorted(set(ids))


def test_a_task_of_a_batch_has_the_defaults_of_enqueue(tx: Connection, clock: Clock) -> None:
    (answer,) = enqueue_many(tx, [{"type": "billing.charge"}])
    alone = status(tx, enqueue(tx, "billing.charge"))

    batched = status(tx, answer["task_id"])

    assert {**batched, "task_id": None} == {**alone, "task_id": None}


def test_a_task_of_a_batch_keeps_what_is_given(tx: Connection, clock: Clock) -> None:
    (answer,) = enqueue_many(
        tx,
        [
            {
                "type": "billing.charge",
                "payload": {"n": 1},
                "queue": "reports",
                "priority": 7,
                "run_at": clock.after(90).isoformat(),
                "idempotency_key": "k-1",
                "max_attempts": 9,
                "timeout": 90,
                "lease": "1 minute",
                "executor": "command",
                "metadata": {"trace": "abc"},
            }
        ],
    )

    task = status(tx, answer["task_id"])
    assert (task["type"], task["queue"], task["executor"]) == ("billing.charge", "reports", "command")
    assert (task["payload"], task["metadata"], task["idempotency_key"]) == ({"n": 1}, {"trace": "abc"}, "k-1")
    assert (task["priority"], task["max_attempts"], task["run_at"]) == (7, 9, clock.after(90))
    assert (task["timeout"], task["lease"]) == (timedelta(seconds=90), timedelta(minutes=1))


@pytest.mark.parametrize(
    ("written", "means"),
    [
        (30, timedelta(seconds=30)),
        (1.5, timedelta(seconds=1.5)),
        ("30", timedelta(seconds=30)),
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("5 minutes", timedelta(minutes=5)),
        ("2h", timedelta(hours=2)),
        ("1 day", timedelta(days=1)),
        ("00:05:00", timedelta(minutes=5)),
        ("1 day 02:03:04.5", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
    ],
)
def test_a_duration_is_seconds_or_has_a_unit(tx: Connection, written: Any, means: timedelta) -> None:
    (answer,) = enqueue_many(tx, [{"type": "default.work", "timeout": written}])

    assert status(tx, answer["task_id"])["timeout"] == means


@pytest.mark.parametrize(
    "written",
    [
        "2030-02-28T12:00:00Z",
        "2030-02-28 14:00+02",
        "2030-02-28T17:45:00.000+05:45",
        "2030-02-28T12:00:00+0000",
    ],
)
def test_a_time_is_iso_8601(tx: Connection, written: str) -> None:
    (answer,) = enqueue_many(tx, [{"type": "default.work", "run_at": written}])

    stored = status(tx, answer["task_id"])["run_at"]
    assert stored.isoformat() == stored.replace(hour=stored.hour, minute=0).isoformat()
    assert value(tx, "select %s = timestamptz '2030-02-28 12:00Z'", [stored])


def test_a_leap_day_is_a_time(tx: Connection) -> None:
    (answer,) = enqueue_many(tx, [{"type": "default.work", "run_at": "2028-02-29T00:00:00Z"}])

    assert status(tx, answer["task_id"])["status"] == "scheduled"


@pytest.mark.parametrize(
    "name", ["queue", "run_at", "idempotency_key", "timeout", "lease", "executor", "metadata"]
)
def test_null_for_what_may_be_left_out_is_as_if_it_were(tx: Connection, name: str) -> None:
    (answer,) = enqueue_many(tx, [{"type": "default.work", name: None}])

    assert status(tx, answer["task_id"])["status"] == "pending"


def test_an_empty_batch_is_fine(tx: Connection) -> None:
    assert enqueue_many(tx, []) == []


def test_one_lane_serves_all_tasks_of_a_queue_type_and_priority(tx: Connection) -> None:
    enqueue_many(tx, [{"type": "lanes.a"}, {"type": "lanes.a"}, {"type": "lanes.a", "priority": 1}])
    enqueue(tx, "lanes.a")
    enqueue_many(tx, [{"type": "lanes.a"}])

    lanes = rows(tx, "select queue, type, priority from queues.lane where queue = 'lanes' order by priority")
    assert [lane["priority"] for lane in lanes] == [0, 1]


@pytest.mark.parametrize(("arguments", "code", "named"), REFUSALS)
def test_what_enqueue_refuses_is_refused_in_a_batch_and_nothing_of_it_is_written(
    tx: Connection, arguments: dict[str, Any], code: str, named: str
) -> None:
    wrong = _task(**{"type": "default.work", **arguments})
    right = _task(type="default.work", payload={"fine": True}, idempotency_key="fine")

    with refused(tx, code, f"tasks[1].{named}"):
        enqueue_many(tx, _batch(right, wrong, right))


@pytest.mark.parametrize(("arguments", "code", "named"), REFUSALS[:1])
def test_a_batch_of_one_names_the_field_alone(
    tx: Connection, arguments: dict[str, Any], code: str, named: str
) -> None:
    with refused(tx, code, "type must not be empty"):
        enqueue_many(tx, _batch(_task(**arguments)))


DURATIONS: list[Any] = [
    *("", "soon", "infinity", "-infinity", "P1D", "1:99:00", "1:00:99", "1 fortnight", "1 month"),
    *("99999 days 999999:59:59", "1e3", -1, 0, True, [], {}),
]

JUNK: dict[str, list[Any]] = {
    "priority": ["high", "", 1.5, "1e3", True, [], {}, "99999999999", " 1", "0x10"],
    "max_attempts": ["many", "", 1.5, True, [], "+3", "99999999999"],
    "run_at": [
        "",
        "now",
        "tomorrow",
        "epoch",
        "2026-02-30T00:00:00Z",
        "2027-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:60Z",
        "0000-01-01T00:00:00Z",
        "2026-01-01T00:00:00+99:00",
        "2026-01-01T00:00:00+01:75",
        "2026-01-01T00:00:00." + "1" * 200 + "Z",
        "12:00",
        "2026-01-01",
        "31/01/2030 12:00",
        1893456000,
        True,
        [],
        {},
    ],
    "timeout": DURATIONS,
    "lease": DURATIONS,
    "executor": [7, ["python"]],
    "queue": [{"a": "b c"}],
}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        *(({name: junk}, name) for name, values in JUNK.items() for junk in values),
        ({"colour": "red"}, '"colour" is unknown'),
        ({"task_id": "01a1e159-5f04-7721-a1b1-b62e1bcaf1fe"}, '"task_id" is unknown'),
        ({"enqueued_by": "somebody"}, '"enqueued_by" is unknown'),
    ],
)
def test_junk_in_an_element_is_refused_and_named(
    tx: Connection, arguments: dict[str, Any], named: str
) -> None:
    with refused(tx, "QF400", f"tasks[2].{named}"):
        enqueue_many(tx, [{"type": "a.b"}, {"type": "a.b"}, {"type": "default.work", **arguments}])


@pytest.mark.parametrize("batch", [{}, {"type": "default.work"}, "text", 7, JsonText("null"), None])
def test_what_is_not_an_array_is_refused(tx: Connection, batch: Any) -> None:
    with refused(tx, "QF400", "tasks must be an array of objects"):
        enqueue_many(tx, batch)


@pytest.mark.parametrize("element", [None, 7, "text", [], [{"type": "default.work"}], True])
def test_an_element_that_is_not_an_object_is_refused_and_counted(tx: Connection, element: Any) -> None:
    with refused(tx, "QF400", "tasks[1]", "must be an object"):
        enqueue_many(tx, [{"type": "default.work"}, element])


def test_a_batch_over_the_limit_is_refused(tx: Connection) -> None:
    change_setting(tx, "max_batch", 1000)

    assert len(enqueue_many(tx, [{"type": "default.work"}] * 1000)) == 1000
    with refused(tx, "QF413", "tasks has 1001 elements, and at most 1000"):
        enqueue_many(tx, [{"type": "default.work"}] * 1001)


def test_numbers_that_render_to_megabytes_do_not_pile_up_in_a_batch(tx: Connection) -> None:
    zeros = JsonText("[" + ",".join(["0e-16383"] * 300) + "]")

    with refused(tx, "QF413", "tasks[0].payload"):
        enqueue_many(tx, _batch(*[_task(type="default.work", payload=zeros)] * 1000))


def test_a_null_character_is_refused_by_the_server_itself(tx: Connection) -> None:
    with refused(tx, "22P05"):
        enqueue_many(tx, JsonText('[{"type": "default.work", "payload": {"text": "\\u0000"}}]'))


def test_the_callers_session_settings_do_not_change_what_is_stored(db: Database) -> None:
    ordinary, odd = db.connect("holdfast_client"), db.connect("holdfast_client")
    odd.execute("set intervalstyle = 'sql_standard'")
    odd.execute("set datestyle = 'SQL, DMY'")
    odd.execute("set timezone = 'Asia/Kathmandu'")
    odd.execute("set search_path = pg_temp, pg_catalog")
    odd.execute("set default_transaction_isolation = 'serializable'")
    batch = [
        {"type": "a.b", "run_at": "2040-12-01T10:20:30.5+02:00", "timeout": "1 day 02:00:00", "lease": "90s"},
        {"type": "a.b", "payload": {"n": 1.5}, "priority": -3},
    ]

    stored = [
        [
            {**status(db.connect(), answer["task_id"]), "task_id": 0, "created_at": 0, "updated_at": 0}
            for answer in enqueue_many(conn, batch)
        ]
        for conn in (ordinary, odd)
    ]

    assert stored[0][0] == stored[1][0]
    assert {**stored[0][1], "run_at": 0} == {**stored[1][1], "run_at": 0}


def test_a_batch_commits_to_disk_whatever_the_session_says(tx: Connection) -> None:
    tx.execute("set local synchronous_commit = off")

    enqueue_many(tx, [{"type": "default.work"}])

    assert value(tx, "show synchronous_commit") == "on"


def test_a_batch_that_is_rolled_back_leaves_nothing(db: Database) -> None:
    client, admin = db.connect("holdfast_client", autocommit=False), db.connect()
    before = counts(admin)

    enqueue_many(client, [{"type": "default.work", "idempotency_key": str(n)} for n in range(10)])
    client.rollback()

    assert counts(admin) == before
    assert claim(db.connect("holdfast_worker")) == []


def test_a_lane_is_looked_up_once_for_a_batch_and_not_for_each_task(tx: Connection) -> None:
    tx.execute("set local track_functions = 'all'")
    find_lane = "'queues.find_lane(text, text, integer, text, text)'::regprocedure"

    enqueue_many(tx, [{"type": "mail.send"}] * 100)

    assert value(tx, f"select pg_stat_get_xact_function_calls({find_lane})") <= 3


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ({"after": "x"}, "after must be an array of task ids"),
        ({"after": ["x"]}, "after must be an array of task ids"),
        ({"after": [], "when": "later"}, 'when is "later": expected succeeded or ended'),
        ({"when": "ended"}, "when needs after"),
        ({"unique": "always", "idempotency_key": "k"}, 'unique is "always"'),
        ({"unique": "waiting"}, "needs an idempotency_key"),
        ({"unique": "waiting", "debounce": 5, "idempotency_key": "k"}, "either unique or debounce"),
        ({"debounce_max": 5, "idempotency_key": "k"}, "debounce_max needs debounce"),
        ({"debounce": -5, "idempotency_key": "k"}, 'debounce "-5" is not a duration'),
        ({"debounce": 5, "run_at": "2031-01-01T00:00Z", "idempotency_key": "k"}, "has no run_at"),
        ({"after": [], "unique": "waiting", "idempotency_key": "k"}, "cannot be unique or debounced"),
    ],
)
def test_relations_to_other_tasks_that_make_no_sense_are_refused(
    tx: Connection, element: dict[str, Any], message: str
) -> None:
    with refused(tx, "QF400", "tasks[1].", message):
        enqueue_many(tx, [{"type": "a.b"}, {"type": "a.b", **element}])


def test_a_batch_mixes_plain_unique_debounced_and_following_tasks(tx: Connection) -> None:
    (first,) = enqueue_many(tx, [{"type": "a.first"}])
    given = [
        {"type": "a.next", "after": [str(first["task_id"])], "when": "ended", "unique": None},
        {"type": "a.plain", "idempotency_key": "k"},
        {"type": "a.sync", "unique": "waiting", "idempotency_key": "k"},
        {"type": "a.sync", "unique": "unfinished", "idempotency_key": "k"},
        {"type": "a.soon", "payload": {"n": 1}, "debounce": 60, "idempotency_key": "k"},
        {"type": "a.soon", "payload": {"n": 2}, "debounce": 60, "idempotency_key": "k"},
    ]
    found = enqueue_many(tx, given)
    assert [row["created"] for row in found] == [True, True, True, False, False, True]
    again = enqueue_many(tx, given)
    assert [row["created"] for row in again] == [True, False, False, False, False, True]
    assert [status(tx, row["task_id"])["status"] for row in found] == [
        *("suspended", "pending", "pending", "pending", "cancelled", "cancelled")
    ]
    last = status(tx, again[5]["task_id"])
    assert (last["status"], last["payload"]) == ("scheduled", {"n": 2})
