"""One task, a task of a batch, and a payload of a batch follow the same rules: same rows, same errors."""

import json
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.clock import Clock
from support.engine import Connection, JsonText, call, change_setting, counts, refused, rows, status, value
from support.refusals import REFUSALS

Options = dict[str, Any]

TYPES = st.sampled_from(
    ["billing.charge", "plain", "a:b.c", "überweisung.los", "declared.work", "a..b", "", "x y"]
)
PAYLOADS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [{}, [], 0, "text", None, {"task_type": "process"}, {"task_type": "email"}, {"task_type": 7}]
    ),
    st.sampled_from([{"text": "x" * size} for size in (200, 400, 3000, 5000, 9000, 300_000)]),
    st.sampled_from(
        [JsonText(text) for text in ("[1e400]", "[1e-400]", "[12e345, 1]", '["1e999"]', "[0e-5000]")]
    ),
    # Behind a text, because long and short payloads are checked in different ways.
    st.sampled_from(
        [
            JsonText(f'["{"x" * 400}",{number}]')
            for number in ("1e400", "-1.5E-400", "12e345", "9" * 310, "0e-5000", "1e5", "7" * 30, "null")
        ]
    ),
    st.sampled_from([JsonText("[" * levels + "]" * levels) for levels in (40, 64, 65, 66, 200)]),
    st.dictionaries(
        st.text("abc", max_size=3), st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    ),
)
# Times and durations are written as PostgreSQL writes them, because errors quote them.
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.sampled_from(["reports", "ü", "", "a b", "q" * 200, "q" * 201]),
        "priority": st.sampled_from([-101, -100, 0, 7, 100, 101]),
        "run_at": st.sampled_from(
            ["1969-12-31T00:00:00+00:00", "2030-01-31T08:00:00+01:00", "2500-01-01T00:00:00+00:00"]
        ),
        "max_attempts": st.sampled_from([0, 1, 9, 1000, 1001]),
        "timeout": st.sampled_from([f"{s:.6f}" for s in (0, 0.001, 90, 2592000, 2592001)]),
        "lease": st.sampled_from([f"{s:.6f}" for s in (0.5, 1, 45, 86400, 86401)]),
        "executor": st.sampled_from(["python", "process", "db_function", "cobol", ""]),
        "metadata": st.sampled_from([{}, {"trace": "abc"}, {"long": "x" * 400}, [], {"long": "x" * 17_000}]),
        "concurrency_key": st.sampled_from(["customer-7", "", "k" * 200, "k" * 201]),
    },
)


def _json(written: Any) -> str:
    return written if isinstance(written, JsonText) else json.dumps(written)


def _element(task_type: str, options: Options, payload: Any = None, *, with_payload: bool = False) -> str:
    members = {"type": task_type, **options}
    parts = [f"{json.dumps(name)}: {_json(member)}" for name, member in members.items()]
    return "{" + ", ".join([*parts, f'"payload": {_json(payload)}'] if with_payload else parts) + "}"


def _alone(tx: Connection, task_type: str, payload: Any, options: Options) -> Any:
    arguments = {"type": task_type, "payload": JsonText(_json(payload)), **options}
    for name in ("timeout", "lease"):
        if name in arguments:
            arguments[name] = timedelta(seconds=float(arguments[name]))
    if "run_at" in arguments:
        arguments["run_at"] = datetime.fromisoformat(arguments["run_at"])
    (row,) = call(tx, "queues.enqueue", arguments)
    return row["enqueue"]


def _in_batch(tx: Connection, task_type: str, payload: Any, options: Options) -> Any:
    batch = f"[{_element(task_type, options, payload, with_payload=True)}]"
    return value(tx, "select task_id from queues.enqueue_many(%s::jsonb)", [batch])


def _as_payload(tx: Connection, task_type: str, payload: Any, options: Options) -> Any:
    return value(
        tx,
        "select task_id from queues.enqueue_many(%s::jsonb, array[%s])",
        [f"[{_element(task_type, options)}]", _json(payload)],
    )


WAYS = (_alone, _in_batch, _as_payload)


def _outcome(tx: Connection, way: Any, task_type: str, payload: Any, options: Options) -> Any:
    """The row of the task without its id, or the error."""
    try:
        with tx.transaction(force_rollback=True):
            task_id = way(tx, task_type, payload, options)
            ready = rows(
                tx,
                """select r.run_at, r.attempt, l.queue, l.type, l.priority, l.concurrency_key
                   from queues.ready r join queues.lane l on l.lane_id = r.lane_id where r.task_id = %s""",
                [task_id],
            )
            return {**status(tx, task_id), "task_id": None}, ready
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary, error.diag.message_hint


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(task_type=TYPES, payload=PAYLOADS, options=OPTIONS)
def test_every_way_to_enqueue_gives_the_same_row_or_the_same_error(
    tx: Connection, clock: Clock, task_type: str, payload: Any, options: Options
) -> None:
    declared = [{"type": "declared.work", "queue": "slow", "priority": 5, "max_attempts": 8, "lease": 77}]
    call(tx, "queues.register_types", {"types": declared})

    alone, *others = (_outcome(tx, way, task_type, payload, options) for way in WAYS)

    assert others == [alone, alone]


@pytest.mark.parametrize(("arguments", "code", "named"), [r for r in REFUSALS if "payload" in r.values[0]])
def test_a_payload_that_is_refused_is_named_by_its_position(
    tx: Connection, arguments: Options, code: str, named: str
) -> None:
    payload = arguments["payload"]

    with refused(tx, code, f"tasks[1].{named}"):
        call(tx, "queues.enqueue_many", {"tasks": [{"type": "a.b"}], "payloads": ["1", _json(payload), "2"]})


def test_options_that_payloads_share_are_refused_once(tx: Connection) -> None:
    with refused(tx, "QF400", "tasks[0].priority"):
        call(tx, "queues.enqueue_many", {"tasks": [{"type": "a.b", "priority": 101}], "payloads": ["1", "2"]})


def test_payloads_come_back_in_their_order(tx: Connection) -> None:
    found = call(
        tx, "queues.enqueue_many", {"tasks": [{"type": "a.b", "priority": 3}], "payloads": ["3", "1", "2"]}
    )

    assert [status(tx, row["task_id"])["payload"] for row in found] == [3, 1, 2]
    assert [status(tx, row["task_id"])["priority"] for row in found] == [3, 3, 3]
    assert [row["created"] for row in found] == [True, True, True]


def test_each_payload_may_name_its_executor(tx: Connection) -> None:
    payloads = ['{"task_type": "email"}', '{"task_type": "invoice"}', "{}"]

    found = call(tx, "queues.enqueue_many", {"tasks": [{"type": "a.b"}], "payloads": payloads})

    executors = [status(tx, row["task_id"])["executor"] for row in found]
    assert executors == ["email", "python", "python"]


def test_no_payloads_are_no_tasks(tx: Connection) -> None:
    before = counts(tx)

    assert call(tx, "queues.enqueue_many", {"tasks": [{"type": "a.b"}], "payloads": []}) == []
    assert counts(tx) == before


@pytest.mark.parametrize(
    ("tasks", "payloads"),
    [
        ([], ["1"]),
        ([{"type": "a.b"}, {"type": "a.b"}], ["1"]),
        ([{"type": "a.b", "payload": {}}], ["1"]),
        ([{"type": "a.b", "idempotency_key": "k"}], ["1"]),
    ],
)
def test_payloads_need_one_object_without_payload_and_key(
    tx: Connection, tasks: Any, payloads: list[str]
) -> None:
    with refused(tx, "QF400", "with payloads, tasks must have one element"):
        call(tx, "queues.enqueue_many", {"tasks": tasks, "payloads": payloads})


def test_a_payload_that_is_null_is_refused(tx: Connection) -> None:
    with refused(tx, "QF400", "tasks[1].payload must not be null"):
        call(tx, "queues.enqueue_many", {"tasks": [{"type": "a.b"}], "payloads": ["1", None]})


def test_payloads_may_be_cast_from_an_array_of_jsonb(tx: Connection) -> None:
    found = rows(
        tx,
        """select task_id from queues.enqueue_many(
             '[{"type": "a.b"}]', array['{"a": 1}'::jsonb, '{"a": 2}']::text[])""",
    )

    assert [status(tx, row["task_id"])["payload"] for row in found] == [{"a": 1}, {"a": 2}]


def test_more_payloads_than_a_batch_may_have_are_refused(tx: Connection) -> None:
    change_setting(tx, "max_batch", 1000)

    with refused(tx, "QF413", "payloads has 1001 elements, and at most 1000"):
        call(tx, "queues.enqueue_many", {"tasks": [{"type": "a.b"}], "payloads": ["1"] * 1001})


def test_the_limit_of_a_payload_holds_for_each_of_a_batch(tx: Connection) -> None:
    change_setting(tx, "max_payload_bytes", 5000)
    fits, too_long = json.dumps({"text": "x" * 4988}), json.dumps({"text": "x" * 4989})

    call(tx, "queues.enqueue_many", {"tasks": [{"type": "a.b"}], "payloads": [fits, fits]})
    with refused(tx, "QF413", "tasks[1].payload", "5001", "5000"):
        call(tx, "queues.enqueue_many", {"tasks": [{"type": "a.b"}], "payloads": [fits, too_long]})
