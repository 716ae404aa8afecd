import json
from collections.abc import Sequence
from typing import Any

import pytest

from support.commands import Holdfast, answer
from support.database import Database
from support.engine import Connection, Row, claim_one, end, enqueue


@pytest.fixture
def conn(db: Database) -> Connection:
    return db.connect()


def _suspended(conn: Connection, steps: Sequence[Row] = (), **more: Any) -> Any:
    task_id = enqueue(conn)
    wait = {"name": "decision", "signal": "decision", "until": "2090-01-01 00:00Z"}
    end(conn, claim_one(conn), "suspend", waits=[wait], run_at="2090-01-01 00:00Z", steps=list(steps), **more)
    return task_id


def test_suspended_runs_are_listed_with_what_they_wait_for(conn: Connection, holdfast: Holdfast) -> None:
    assert holdfast("runs", "list").stderr == "No suspended runs found.\n"
    task_id = _suspended(conn)

    shown = holdfast("runs", "list")
    assert str(task_id) in shown.stdout
    (listed,) = answer(holdfast("runs", "list", "--json"))["runs"]
    assert (listed["task_id"], listed["signal"]) == (str(task_id), "decision")
    assert holdfast("runs", "list", "--queue", "other").stderr == "No suspended runs found.\n"


def test_the_timeline_shows_steps_and_waits_without_values(conn: Connection, holdfast: Holdfast) -> None:
    charge = {"name": "charge", "number": 1, "kind": "step", "took_ms": 20, "result": "secret"}
    task_id = _suspended(conn, [charge])

    shown = holdfast("runs", "show", str(task_id)).stdout

    lines = shown.splitlines()
    assert any("step  charge" in line and "█" in line for line in lines)
    assert any("waits  decision" in line and "signal decision" in line for line in lines)
    assert "secret" not in shown
    entries = answer(holdfast("runs", "show", str(task_id), "--json"))["timeline"]
    assert "charge" in [entry["name"] for entry in entries]


def test_values_of_steps_are_shown_on_request(conn: Connection, holdfast: Holdfast) -> None:
    charge = {"name": "charge", "number": 1, "kind": "step", "took_ms": 20, "result": {"receipt": "r-7"}}
    charge["arguments"] = {"order_id": 42}
    refund = {"name": "refund", "number": 2, "kind": "step", "took_ms": 20, "result": "x" * 20_000}
    task_id = _suspended(conn, [charge, refund])

    shown = holdfast("runs", "show", str(task_id), "--values")

    assert 'charge (step)\n  arguments: {"order_id": 42}\n  result: {"receipt": "r-7"}\n' in shown.stdout
    assert shown.stdout.rstrip().endswith("xxx … (cut)")
    stored = answer(holdfast("runs", "show", str(task_id), "--values", "--json"))["steps"]
    assert [(one["name"], one["is_cut"]) for one in stored] == [("charge", False), ("refund", True)]


def test_the_arguments_of_a_failing_step_are_shown_on_request(conn: Connection, holdfast: Holdfast) -> None:
    error = {"kind": "handler_error", "message": "bank is down", "arguments": {"order_id": 42}}
    tried = {"name": "charge", "try": 1, "tries": 5, "retry_at": "2090-01-01 00:00Z", "error": error}
    task_id = _suspended(conn, tries=[tried])

    shown = holdfast("runs", "show", str(task_id), "--values").stdout

    said = 'charge (failed try 1 of 5)\n  arguments: {"order_id": 42}\n  error: bank is down\n'
    assert said in shown
    [failing] = answer(holdfast("runs", "show", str(task_id), "--values", "--json"))["failing"]
    assert (failing["step"], failing["arguments"]) == ("charge", {"order_id": 42})
    assert "42" not in holdfast("runs", "show", str(task_id)).stdout.replace(str(task_id), "")


def test_a_signal_wakes_the_run(conn: Connection, holdfast: Holdfast) -> None:
    task_id = _suspended(conn)

    sent = holdfast("runs", "signal", str(task_id), "decision", '{"approved": true}', "--key", "1")
    assert sent.stdout == "kept\n"
    again = holdfast("runs", "signal", str(task_id), "decision", '{"approved": true}', "--key", "1")
    assert again.stdout == "replayed\n"
    assert claim_one(conn)["task_id"] == task_id
    listed = holdfast(
        "runs", "signal", str(task_id), "decision", '{"approved": true}', "--key", "1", "--json"
    )
    assert json.loads(listed.stdout) == {"signal": "replayed"}
    refused = holdfast("runs", "signal", str(task_id), "decision", '{"approved": false}', "--key", "1")
    assert (refused.stdout, refused.exit_code) == ("conflict\n", 1)


def test_a_payload_that_is_not_json_is_refused(conn: Connection, holdfast: Holdfast) -> None:
    refused = holdfast("runs", "signal", str(_suspended(conn)), "decision", "{yes")

    assert refused.exit_code == 2
    assert "JSON" in refused.stderr


def test_a_fork_prints_the_id_of_the_new_task(conn: Connection, holdfast: Holdfast) -> None:
    task_id = _suspended(conn, [{"name": "charge", "number": 1, "kind": "step"}])

    forked = holdfast("runs", "fork", str(task_id), "--before", "charge", "--reason", "again")

    assert claim_one(conn)["task_id"] != task_id
    assert len(forked.stdout.strip()) == 36
    forked = holdfast("runs", "fork", str(task_id), "--json")
    assert list(json.loads(forked.stdout)) == ["task_id"]
    assert holdfast("runs", "fork", str(task_id), "--before", "never").exit_code == 4


def test_a_step_that_fails_is_listed_with_its_try_and_error(conn: Connection, holdfast: Holdfast) -> None:
    later = "2090-01-01 00:00Z"
    failed = [
        {"name": "call_bank", "try": n, "tries": 9, "retry_at": later, "error": {"message": f"no bank {n}"}}
        for n in (1, 2)
    ]
    waits = [{"name": "call_bank", "until": later}, {"name": "decision", "signal": "ok", "until": later}]
    task_id = enqueue(conn)
    end(conn, claim_one(conn), "suspend", waits=waits, run_at=later, steps=[], tries=failed)

    failing, waiting = holdfast("runs", "list").stdout.splitlines()[1:]
    assert all(text in failing for text in (str(task_id), "call_bank", "failed try 2 of 9", "no bank 2"))
    assert "try" not in waiting
    listed = answer(holdfast("runs", "list", "--json"))["runs"]
    assert [(one["step_try"], one["step_tries"], one["error"]) for one in listed] == [
        (2, 9, "no bank 2"),
        (None, None, None),
    ]
