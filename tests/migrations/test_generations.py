"""Version 2 of the schema: the chains of tasks of ctx.continue_as become generations of one task."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from holdfast._install.schema import SCHEMA_VERSION, Migration, install_test_clock, migrate, script
from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    Row,
    answer,
    call,
    claim,
    claim_one,
    end,
    enqueue,
    held,
    rows,
    status,
    sweep,
    value,
)
from support.fingerprint import fingerprint
from support.invariant import assert_invariant


def _signal(conn: Connection, task_id: UUID, name: str, payload: Any, key: str | None = None) -> str:
    return str(
        answer(conn, "queues.signal", {"task_id": task_id, "name": name, "payload": payload, "key": key})
    )


def _go_on(conn: Connection, task: Row, payload: Any, *steps: Row) -> Row:
    assert end(conn, task, "continue", payload=payload, steps=list(steps)) == "accepted"
    return claim_one(conn)


def _step(name: str, **more: Any) -> Row:
    return {"name": name, "number": 1, "kind": "step", **more}


def _taken(conn: Connection, task_id: UUID) -> Row:
    """A step that takes the newest signal."""
    signal_id = value(conn, "select max(signal_id) from queues.signal where task_id = %s", [task_id])
    return {"name": "wait[note]", "number": 1, "kind": "signal", "signal_id": signal_id}


def _remembered(conn: Connection, task: Row, *signals: str) -> list[tuple[str, str, Any]]:
    facts = call(conn, "queues.read_steps", {"worker_id": "w1", "held": held(task, signals=list(signals))})
    return [(row["fact"], row["name"], row["result"]) for row in facts if row["fact"] != "run"]


@pytest.mark.parametrize("how", ["python", pytest.param("psql", marks=pytest.mark.full)])
def test_an_upgraded_database_is_the_same_as_a_new_one(
    old: Database, new_database: Callable[[], Database], psql: Callable[[str, str], str], how: str
) -> None:
    fresh = new_database()
    migrate(fresh.dsn)

    if how == "psql":
        assert psql(old.dsn, script()) == "done\n"
    else:
        assert migrate(old.dsn) == Migration("upgrade", 1, SCHEMA_VERSION)

    one, other = fingerprint(old.connect()), fingerprint(fresh.connect())
    names = sorted(one.keys() | other.keys())
    assert {
        name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)
    } == {}


def test_a_chain_that_waits_becomes_one_task_with_the_first_id(old: Database) -> None:
    conn = old.connect()
    first = enqueue(conn, idempotency_key="order-7", payload={"day": 1}, deadline="1 day")
    task = claim_one(conn)
    _signal(conn, first, "note", "taken", "k")
    task = _go_on(conn, task, {"day": 2}, _step("charge", result=1), _taken(conn, first) | {"number": 2})
    _signal(conn, task["task_id"], "note", "taken again", "k")
    task = _go_on(
        conn, task, {"day": 3}, _step("charge", result=2), _taken(conn, task["task_id"]) | {"number": 2}
    )
    _signal(conn, task["task_id"], "note", "unread", "l")
    conn.execute(  # as a transaction does that was open while the first run ended
        "insert into queues.signal (task_id, sent_at, name, sent_by, payload)"
        " values (%s, queues.clock(), 'note', 'late', '\"late\"')",
        [first],
    )
    wait = {"name": "wait[word]", "signal": "word"}
    end(conn, task, "suspend", run_at="2100-01-01", waits=[wait], steps=[_step("charge", result=3)])

    migrate(old.dsn)

    assert status(conn, first)["status"] == "suspended"
    assert (status(conn, first)["generation"], status(conn, first)["payload"]) == (3, {"day": 3})
    assert rows(conn, "select task_id from queues.task") == [{"task_id": first}]
    assert enqueue(conn, idempotency_key="order-7", payload={"day": 1}, deadline="1 day") == first
    former = rows(conn, "select task_id, number, payload from queues.generation order by number")
    assert [(row["task_id"], row["number"], row["payload"]["day"]) for row in former] == [
        (first, 1, 1),
        (first, 2, 2),
    ]
    assert [row["event_type"] for row in call(conn, "queues.task_events_of", {"task_ids": [first]})].count(
        "continued"
    ) == 2
    assert _signal(conn, first, "note", "taken", "k") == "replayed"
    assert _signal(conn, first, "word", "go") == "kept"
    again = claim_one(conn)
    assert (again["task_id"], again["attempt"], again["ends_at"] is None) == (first, 1, False)
    assert _remembered(conn, again, "note") == [
        ("step", "charge", 3),
        ("signal", "note", "unread"),
        ("signal", "note", "late"),
        ("signal", "word", "go"),
        ("wait", "wait[word]", None),
    ]
    assert_invariant(conn)
    assert end(conn, again, result="done") == "accepted"


def test_a_chain_that_has_ended_keeps_its_end_under_the_first_id(old: Database) -> None:
    conn = old.connect()
    first = enqueue(conn)
    end(conn, _go_on(conn, claim_one(conn), {"n": 2}), result="done")

    migrate(old.dsn)

    (ended,) = rows(conn, "select * from queues.task_status")
    assert (ended["task_id"], ended["status"], ended["result"]) == (first, "succeeded", "done")
    assert_invariant(conn)


def test_a_held_run_of_a_chain_is_recovered_after_its_lease(old: Database) -> None:
    conn = old.connect()
    first = enqueue(conn)
    task = _go_on(conn, claim_one(conn), {"n": 2}, _step("charge", result=1))

    migrate(old.dsn)

    assert end(conn, task) == "lost"
    install_test_clock(old.dsn)
    Clock(conn).advance(3600)
    sweep(conn)
    again = claim_one(conn)
    assert (again["task_id"], again["payload"], again["attempt"]) == (first, {"n": 2}, 2)
    assert_invariant(conn)


def test_a_join_waits_for_a_child_that_was_a_chain(old: Database) -> None:
    conn = old.connect()
    enqueue(conn, "run.parent", queue="run")
    parent = claim_one(conn, queues=["run"])
    call(
        conn,
        "queues.start_children",
        {
            "worker_id": "w1",
            "held": {**held(parent)[0], "name": "join", "number": 1, "awaited": True},
            "tasks": [{"type": "default.work", "payload": {}}],
        },
    )
    end(conn, parent, "suspend", run_at="2100-01-01", waits=[{"name": "join", "policy": "all"}])
    child = _go_on(conn, claim_one(conn), {"n": 2})
    end(conn, child, "snooze", run_at="2000-01-01")
    conn.execute("select queues.wake_joined(%s)", [[child["task_id"]]])

    migrate(old.dsn)

    (child,) = claim(conn)
    end(conn, child, result="done")
    conn.execute("select queues.wake_joined(%s)", [[child["task_id"]]])
    (parent,) = claim(conn, queues=["run"])
    (children,) = rows(conn, "select results from queues.children_of(%s)", [parent["task_id"]])
    assert children["results"] == ["done"]


def test_a_chain_whose_first_run_retention_has_removed_begins_with_the_oldest_left(old: Database) -> None:
    conn = old.connect()
    first = enqueue(conn)
    second = _go_on(conn, claim_one(conn), {"n": 2})
    _go_on(conn, second, {"n": 3})
    conn.execute("begin; set local role holdfast_owner")
    conn.execute("select queues.forget_tasks(%s)", [[first]])
    conn.execute("commit")

    migrate(old.dsn)

    (left,) = rows(conn, "select task_id, generation, payload from queues.task_status")
    assert (left["task_id"], left["generation"], left["payload"]) == (second["task_id"], 2, {"n": 3})
    assert_invariant(conn)
