"""What queues.finish stores of results and errors: content never keeps a task from ending."""

from typing import Any

import pytest

from support.engine import Connection, JsonText, change_setting, claim_new, end, finish, status


@pytest.mark.parametrize("result", [None, 0, False, "", [], {}, "text", 1.5, {"deep": [1, {"a": None}]}])
def test_a_result_may_be_any_json(tx: Connection, result: Any) -> None:
    task = claim_new(tx)

    assert end(tx, task, result=result) == "accepted"
    assert status(tx, task["task_id"])["result"] == result


UNREADABLE = {
    "too large": JsonText('"' + "x" * 1_100_000 + '"'),
    "too deep": JsonText("[" * 70 + "]" * 70),
    "1e400": JsonText("[1e400]"),
    "1e-400": JsonText("[1e-400]"),
    "1e131071 many times": JsonText("[" + ",".join(["1e131071"] * 300) + "]"),
    "0e-16383 many times": JsonText("[" + ",".join(["0e-16383"] * 300) + "]"),
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "cancelled"])
def test_a_result_that_nobody_could_read_is_replaced_and_the_task_ends(
    tx: Connection, content: str, ending: str
) -> None:
    task = claim_new(tx, max_attempts=1)
    result = JsonText(
        f'[{{"task_id": "{task["task_id"]}", "token": {task["token"]}, "status": "{ending}",'
        f' "result": {content}}}]'
    )

    assert finish(tx, result) == ["accepted"]

    now = status(tx, task["task_id"])
    assert now["status"] == ("dead_letter" if ending == "retry" else ending)
    assert now["result"]["holdfast"] == "not stored"
    assert now["result"]["reason"].startswith("the value ")


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_an_error_that_nobody_could_read_is_replaced_and_the_task_ends(tx: Connection, content: str) -> None:
    task = claim_new(tx)
    result = JsonText(
        f'[{{"task_id": "{task["task_id"]}", "token": {task["token"]}, "status": "failed",'
        f' "error": {content}}}]'
    )

    assert finish(tx, result) == ["accepted"]
    assert status(tx, task["task_id"])["error"]["detail"]["holdfast"] == "not stored"


def test_the_limit_of_a_result_can_be_set(tx: Connection) -> None:
    change_setting(tx, "max_result_bytes", 5000)
    small, large = claim_new(tx), claim_new(tx)

    end(tx, small, result="x" * 4998)
    end(tx, large, result="x" * 4999)

    assert status(tx, small["task_id"])["result"] == "x" * 4998
    assert status(tx, large["task_id"])["result"]["holdfast"] == "not stored"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ({"kind": "ValueError", "message": "bad"}, "ValueError", "bad"),
        ({"kind": "ValueError"}, "ValueError", "ValueError"),
        ({"message": "bad"}, "handler_error", "bad"),
        ({"what": "ever"}, "handler_error", '{"what": "ever"}'),
        ("bad", "handler_error", "bad"),
        (7, "handler_error", "7"),
        ([1], "handler_error", "[1]"),
        (None, "handler_error", "no message"),
        ({"kind": "k" * 300, "message": "m" * 9000}, "k" * 200, "m" * 8192),
    ],
)
@pytest.mark.parametrize("ending", ["failed", "retry"])
def test_an_error_may_have_any_shape(
    tx: Connection, error: Any, kind: str, message: str, ending: str
) -> None:
    task = claim_new(tx)

    end(tx, task, ending, error=error)

    told = status(tx, task["task_id"])
    assert (told["error"]["kind"], told["last_error"]) == (kind, message)
