import json
import math
import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast._engine import AsyncEngine, Engine, Statement, enqueue, leases, tasks, workers
from holdfast._engine.enqueue import NewTask
from holdfast._engine.leases import Claimed
from holdfast._engine.tasks import TaskFilter, TaskStatus
from holdfast._serialization.text import RawJson, load_json, report_json
from holdfast.errors import InvalidArgument, UnsupportedValue
from support.leases import ended, holding

TASK_ID = UUID("01990000-0000-7000-8000-000000000001")
NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)

STATEMENTS: list[Statement[Any]] = [
    enqueue.enqueue(
        NewTask(
            "a.b",
            {},
            queue="q",
            priority=1,
            run_at=NOON,
            idempotency_key="k",
            max_attempts=3,
            timeout=timedelta(1),
            lease=timedelta(1),
            executor="python",
            metadata={"trace": "x"},
        )
    ),
    enqueue.enqueue_many([NewTask("a"), NewTask("b")]),
    leases.claim("w", 5, queues=["q"], type_prefixes=["a."], lease=timedelta(seconds=9), after="{}"),
    leases.heartbeat("w", [holding(TASK_ID, 1)]),
    leases.finish("w", [ended(TASK_ID, 1, "succeeded")]),
    leases.release("w", [holding(TASK_ID, 1)]),
    leases.sweep(7),
    leases.run_function("a.b", {}),
    leases.record_killed("w", [leases.killed_json(TASK_ID, 1, "{}")]),
    leases.last_error("w", TASK_ID, 1),
    tasks.cancel(TASK_ID, "r"),
    tasks.list_tasks(TaskFilter("failed", "q", "a.", NOON), TASK_ID, 10),
    tasks.task_status(TASK_ID),
    tasks.task_errors(TASK_ID),
    workers.register_worker("w", "h", pid=1, version="1", queues=["q"], type_prefixes=["a."], concurrency=2),
    workers.worker_status(),
]


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.sql[:40])
def test_placeholders_are_numbered_in_order_each_used_once_and_cast(statement: Statement[Any]) -> None:
    numbers = [int(number) for number in re.findall(r"\$(\d+)", statement.sql)]
    assert numbers == list(range(1, len(statement.params) + 1))
    assert len(re.findall(r"\$\d+::[a-z]", statement.sql)) == len(numbers)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.sql[:40])
def test_a_statement_can_be_written_for_drivers_with_percent_signs(statement: Statement[Any]) -> None:
    assert statement.percent_sql.count("%s") == len(statement.params)
    assert "$" not in statement.percent_sql


def test_both_engines_have_the_same_methods() -> None:
    def methods(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("__")}

    assert methods(Engine) == methods(AsyncEngine)


def test_what_is_not_given_is_not_passed_so_that_the_defaults_of_the_function_hold() -> None:
    built = enqueue.enqueue(NewTask("a.b"))
    assert built.sql == "select queues.enqueue(type => $1::text, payload => $2::text::jsonb)"
    assert built.params == ("a.b", "{}")


def test_a_value_is_bound_and_never_part_of_the_sql() -> None:
    hostile = "'); drop schema queues cascade; --"
    built = tasks.cancel(TASK_ID, hostile)
    assert hostile not in built.sql
    assert built.params == (TASK_ID, hostile)


@pytest.mark.parametrize(
    "payload", [math.nan, {"x": math.inf}, {"x": object()}, {"x": "\ud800"}, {"\udfff": 1}, RawJson('"\0"')]
)
def test_a_payload_that_is_not_json_is_refused_before_it_is_sent(payload: Any) -> None:
    with pytest.raises(UnsupportedValue, match=r"^payload "):
        enqueue.enqueue(NewTask("a.b", payload))
    with pytest.raises(UnsupportedValue, match=r"^tasks\[1\]\.payload "):
        enqueue.enqueue_many([NewTask("a.b"), NewTask("a.b", payload)])


def test_a_payload_that_contains_itself_is_refused() -> None:
    payload: list[Any] = []
    payload.append(payload)
    with pytest.raises(UnsupportedValue, match="payload cannot be written as JSON"):
        enqueue.enqueue(NewTask("a.b", payload))


@pytest.mark.parametrize("value", ["nul\0", "half \ud83d"])
def test_text_that_postgres_cannot_hold_is_refused_by_the_name_of_its_argument(value: str) -> None:
    with pytest.raises(UnsupportedValue, match=r"^reason holds"):
        tasks.cancel(TASK_ID, value)
    with pytest.raises(UnsupportedValue, match=r"^queues holds"):
        leases.claim("w", queues=[value])


def test_a_time_without_a_zone_is_refused() -> None:
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(InvalidArgument, match="run_at 2030-01-31T12:00:00 has no time zone"):
        enqueue.enqueue(NewTask("a.b", run_at=naive))
    with pytest.raises(InvalidArgument, match=r"tasks\[0\]\.run_at 2030"):
        enqueue.enqueue_many([NewTask("a.b", run_at=naive)])


def test_raw_json_is_sent_with_every_digit() -> None:
    written = RawJson('{"x": 0.10000000000000000000000000001}')
    assert enqueue.enqueue(NewTask("a.b", written)).params[1] == written
    assert written in enqueue.enqueue_many([NewTask("a.b", written)]).params[0]


def test_a_batch_has_the_members_of_enqueue() -> None:
    built = enqueue.enqueue_many(
        [NewTask("a.b", {"x": 1}, run_at=NOON, timeout=timedelta(microseconds=1500), idempotency_key="k")]
    )
    assert json.loads(built.params[0]) == [
        {
            "type": "a.b",
            "payload": {"x": 1},
            "run_at": "2030-01-31T12:00:00+00:00",
            "idempotency_key": "k",
            "timeout": "0.001500",
        }
    ]


def test_a_null_payload_is_sent_so_that_the_engine_decides() -> None:
    assert json.loads(enqueue.enqueue_many([NewTask("a.b", None)]).params[0])[0]["payload"] is None


def test_documents_are_selected_as_text() -> None:
    built = tasks.task_status(TASK_ID)
    assert "answer.payload::text" in built.sql
    assert "answer.status," in built.sql
    assert "answer.payload::text, answer.attempt" in leases.claim("w").sql


def test_a_row_becomes_a_dataclass_with_decoded_documents() -> None:
    row = ['{"x": 1}' if field.name in {"payload", "error"} else None for field in fields(TaskStatus)]
    found = tasks.task_status(TASK_ID).decode([row])
    assert found is not None
    assert (found.payload, found.result) == ({"x": 1}, None)


def test_a_claimed_payload_stays_text_so_that_one_that_cannot_be_decoded_fails_alone() -> None:
    row = ["[1e" if name == "payload" else None for name in Claimed._fields]
    [claimed] = leases.claim("w").decode([row])
    assert claimed.payload == "[1e"


def test_a_document_that_python_cannot_decode_stays_text_for_people() -> None:
    digits = "9" * 5000
    assert load_json(digits) == digits


@pytest.mark.parametrize(
    ("reported", "stored"),
    [
        ({"x": 1.5}, {"x": 1.5}),
        ("nul \0 here", "nul \ufffd here"),
        (r"not nul \u0000", r"not nul \u0000"),
        ("\\\0", "\\\ufffd"),
        ("half \ud83d of a pair", "half \ufffd of a pair"),
        ({"\udfff": "☃"}, {"\ufffd": "☃"}),
        (RawJson('{"x": 1}'), {"x": 1}),
    ],
)
def test_what_a_handler_reports_is_made_storable(reported: Any, stored: Any) -> None:
    assert json.loads(report_json(reported)) == stored


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "reported",
    [math.nan, object(), {1j: 1}, 10**5000, nested(600), nested(100_000), "x" * 20_000_000],
    ids=["nan", "object", "key", "digits", "deep", "too deep to write", "long"],
)
def test_what_cannot_be_written_becomes_a_note(reported: Any) -> None:
    assert json.loads(report_json(reported))["holdfast"] == "not stored"


def test_brackets_in_strings_are_not_depth() -> None:
    assert json.loads(report_json(["[" * 1000])) == ["[" * 1000]


def test_a_result_carries_its_documents_unread() -> None:
    digits = "9" * 5000
    written = leases.result_json(
        TASK_ID, 7, "retry", result=digits, error='{"kind":"x"}', run_at="infinity", started_at="today"
    )
    assert written == (
        f'{{"started_at":"today","result":{digits},"error":{{"kind":"x"}},"run_at":"infinity",'
        f'"status":"retry","task_id":"{TASK_ID}","token":7}}'
    )


def test_members_that_are_not_given_are_left_out() -> None:
    assert leases.held_json("a", 1) == '{"task_id":"a","token":1}'
    assert leases.result_json("a", 1, "succeeded") == '{"status":"succeeded","task_id":"a","token":1}'


def test_verdicts_come_in_the_order_of_the_batch() -> None:
    assert leases.finish("w", []).decode([("accepted",), ("lost",)]) == ["accepted", "lost"]


def test_one_bad_result_does_not_keep_the_others_from_being_sent() -> None:
    results = [ended(TASK_ID, 1, "succeeded", {"ok": 1}), ended(TASK_ID, 2, "failed", error=object())]
    good, bad = json.loads(leases.finish("w", results).params[1])
    assert (good["result"], bad["error"]["holdfast"]) == ({"ok": 1}, "not stored")
