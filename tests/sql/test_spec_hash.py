"""queues.spec_hash: the same spec has the same hash, however it was written."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.engine import Connection, JsonText, enqueue, enqueue_many, status, value

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
# What jsonb can hold: no U+0000 and no lone surrogate.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(-1e15, 1e15) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=15,
)
NAME = st.text(st.characters(categories=["L", "N"], include_characters='_"\\'), min_size=1, max_size=20)


def _spec_hash(tx: Connection, payload: str, task_type: str = "a.b", executor: str = "python") -> str:
    hashed: str = value(
        tx, "select encode(queues.spec_hash(%s, %s, %s::jsonb), 'hex')", [task_type, executor, payload]
    )
    return hashed


@QUICK
@given(task_type=NAME, executor=NAME, payload=JSON)
def test_it_is_the_sha_256_of_the_spec_in_the_normal_form_of_jsonb(
    tx: Connection, task_type: str, executor: str, payload: Any
) -> None:
    canonical = value(
        tx,
        "select jsonb_build_object('type', %s::text, 'executor', %s::text, 'payload', %s::jsonb)::text",
        [task_type, executor, json.dumps(payload)],
    )

    expected = hashlib.sha256(canonical.encode()).hexdigest()
    assert _spec_hash(tx, json.dumps(payload), task_type, executor) == expected


@QUICK
@given(payload=JSON.filter(lambda payload: payload is not None))
def test_enqueue_and_enqueue_many_store_it(tx: Connection, payload: Any) -> None:
    expected = _spec_hash(tx, json.dumps(payload))

    alone = enqueue(tx, "a.b", payload=JsonText(json.dumps(payload)))
    assert status(tx, alone)["spec_hash"] == expected
    (batched,) = enqueue_many(tx, [{"type": "a.b", "payload": payload}])
    assert status(tx, batched["task_id"])["spec_hash"] == expected


def test_a_large_payload_is_hashed_as_a_small_one_is(tx: Connection) -> None:
    payload = json.dumps({"text": "é" * 20_000, "list": list(range(2000))})

    assert status(tx, enqueue(tx, "a.b", payload=JsonText(payload)))["spec_hash"] == _spec_hash(tx, payload)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param('{"a": 1, "bb": 2}', '{"bb": 2, "a": 1}', id="order of keys"),
        pytest.param('{"a":1,"b":[2]}', ' { "a" : 1 ,\n"b" : [ 2 ] } ', id="white space"),
        pytest.param('"\\u00e9\\u20ac"', '"é€"', id="unicode escapes"),
        pytest.param('"\\ud83d\\ude00"', '"😀"', id="surrogate pairs"),
        pytest.param('"\\/"', '"/"', id="escaped slash"),
        pytest.param('{"a": 1, "a": 2}', '{"a": 2}', id="the last of equal keys counts"),
        pytest.param("[1e2]", "[100]", id="exponents"),
    ],
)
def test_what_means_the_same_has_the_same_hash(tx: Connection, one: str, other: str) -> None:
    assert _spec_hash(tx, one) == _spec_hash(tx, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("1", "1.0", id="a trailing zero"),
        pytest.param("{}", '{"a": null}', id="a field that is missing"),
        pytest.param("[1, 2]", "[2, 1]", id="order of a list"),
        pytest.param('"1"', "1", id="text and number"),
        pytest.param('"e\\u0301"', '"é"', id="composed and decomposed letters"),
    ],
)
def test_what_means_something_else_has_another_hash(tx: Connection, one: str, other: str) -> None:
    assert _spec_hash(tx, one) != _spec_hash(tx, other)


def test_type_and_executor_are_part_of_the_spec(tx: Connection) -> None:
    hashes = {
        _spec_hash(tx, "{}", task_type, executor)
        for task_type in ("a.b", "a.c")
        for executor in ("python", "process")
    }

    assert len(hashes) == 4


def test_no_other_argument_is_part_of_the_spec(tx: Connection) -> None:
    plain = enqueue(tx, "a.b")
    dressed = enqueue(tx, "a.b", queue="q", priority=5, max_attempts=9, timeout="5s", metadata={"m": 1})

    assert status(tx, plain)["spec_hash"] == status(tx, dressed)["spec_hash"]
