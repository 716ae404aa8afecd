"""What a database at version 1 of the schema contains is kept, and means the same afterwards."""

import json
from uuid import UUID

from holdfast._install.schema import install_test_clock, migrate
from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    Row,
    act,
    answer,
    call,
    claim,
    claim_new,
    claim_one,
    do_chores,
    end,
    enqueue,
    held,
    rows,
    status,
    value,
)
from support.invariant import assert_invariant

FAR = "2100-01-01Z"


def _after(conn: Connection, task_id: UUID) -> UUID:
    tasks = json.dumps([{"type": "late.work", "payload": {}}])
    query = "select task_id from queues.enqueue_after(%s::jsonb, %s)"
    return UUID(str(value(conn, query, [tasks, [task_id]])))


def _run(conn: Connection, name: str) -> tuple[UUID, Row]:
    task_id = enqueue(conn, f"{name}.run")
    return task_id, claim_one(conn, queues=[name])


def _start_children(conn: Connection, parent: Row, step: str, count: int) -> list[UUID]:
    run = {**held(parent)[0], "name": step, "number": 1, "awaited": True}
    tasks = [{"type": "child.work", "payload": {}}] * count
    arguments = {"worker_id": "w1", "held": run, "tasks": tasks}
    return [row["task_id"] for row in call(conn, "queues.start_children", arguments)]


def test_the_status_of_each_task_stays(old: Database) -> None:
    conn = old.connect()
    begun = claim_new(conn)
    for ending in ("succeeded", "failed", "cancelled"):
        end(conn, claim_new(conn), ending)
    end(conn, claim_new(conn, max_attempts=1), "retry", error={"message": "no"})
    end(conn, claim_new(conn), "retry", run_at=FAR, error={"message": "again"})
    end(conn, claim_new(conn), "snooze", run_at=FAR)
    end(conn, claim_new(conn), "suspend", run_at=FAR, waits=[{"name": "w", "signal": "w", "until": FAR}])
    for task_id in (enqueue(conn), _end_new(conn)):
        act(conn, "delete_task", task_id)
    act(conn, "retry", _end_new(conn, "failed"))
    enqueue(conn, "demo.keyed", idempotency_key="k", concurrency_key="c", run_at=FAR)
    conn.execute("select queues.add_schedule('nightly', 'demo.sweep', cron => '0 3 * * *')")
    message = "comms.create_email_message('ada@example.com', 'Hello', 'A text')"
    conn.execute(f"select comms.kickoff_send_email_task({message})".encode())
    before = _statuses(conn)
    assert len({row["status"] for row in before}) >= 8

    migrate(old.dsn)

    assert _statuses(conn) == before
    assert_invariant(conn)
    assert end(conn, begun, result="done") == "accepted"
    assert [row["name"] for row in rows(conn, "select name from queues.schedule_status")] == ["nightly"]
    assert value(conn, "select count(*) from comms.message_content") == 1


def _end_new(conn: Connection, ending: str = "succeeded") -> UUID:
    task = claim_new(conn)
    end(conn, task, ending)
    return UUID(str(task["task_id"]))


def _statuses(conn: Connection) -> list[Row]:
    columns = "task_id, status, attempt, run_at, finished_at, error, result, idempotency_key, worker_id"
    return rows(conn, f"select {columns} from queues.task_status order by task_id")


def test_why_the_engine_cancelled_a_task_is_known(old: Database) -> None:
    conn = old.connect()
    first, parent = claim_new(conn), _run(conn, "parent")[1]
    late = _after(conn, first["task_id"])
    lunch = enqueue(conn)
    act(conn, "cancel", lunch, reason="after: lunch")
    (child, racer) = _start_children(conn, parent, "join", 2)
    end(conn, first, "failed")
    call(conn, "queues.wake_joined", {"task_ids": [first["task_id"]]})
    conn.execute(
        "insert into queues.unwanted (task_id, reason) values (%s, %s), (%s, %s)",
        [
            child,
            f"its parent {parent['task_id']} ended failed",
            racer,
            f"join of its parent {first['task_id']} is over",
        ],
    )
    end(conn, parent, "failed")

    migrate(old.dsn)
    do_chores(conn)

    causes = {
        row["task_id"]: (row["status"], row["cause"], row["cause_id"])
        for row in rows(conn, "select * from queues.outcome")
    }
    assert causes[late] == ("cancelled", "d", first["task_id"])
    assert causes[child] == ("cancelled", "p", parent["task_id"])
    assert causes[racer] == ("cancelled", "s", first["task_id"])
    assert causes[lunch] == ("cancelled", None, None)


def test_a_task_after_one_that_is_retried_waits_for_it_again_and_needs_its_success(old: Database) -> None:
    conn = old.connect()
    first = claim_new(conn)
    late = _after(conn, first["task_id"])
    waiting = _after(conn, enqueue(conn, "other.work", run_at=FAR))
    end(conn, first, "failed")
    call(conn, "queues.wake_joined", {"task_ids": [first["task_id"]]})
    assert status(conn, late)["status"] == "cancelled"

    migrate(old.dsn)
    act(conn, "retry", first["task_id"])
    do_chores(conn)

    assert status(conn, late)["status"] == "suspended"
    assert value(conn, "select until < now() from queues.wait where task_id = %s", [waiting])
    assert claim(conn, queues=["late"]) == []
    end(conn, claim_one(conn, queues=["default"]), "failed")
    call(conn, "queues.wake_joined", {"task_ids": [first["task_id"]]})
    do_chores(conn)
    assert status(conn, late)["status"] == "cancelled"


def test_signals_failed_tries_and_looks_to_be_done_go_on(old: Database) -> None:
    conn = old.connect()
    run_id, task = _run(conn, "run")
    tries = [
        {"name": "charge", "try": n, "retry_at": FAR, "error": {"kind": "Busy", "message": "no"}}
        for n in range(1, 61)
    ]
    call(conn, "queues.record_steps", {"worker_id": "w1", "runs": [held(task, tries=tries)[0]]})
    arguments = {"task_id": run_id, "name": "note", "payload": "text", "key": "k"}
    assert answer(conn, "queues.signal", arguments) == "kept"
    wait = {"name": "wait[note]", "signal": "note", "until": FAR}
    end(conn, task, "suspend", run_at=FAR, waits=[wait])  # leaves a look to be done

    migrate(old.dsn)

    assert answer(conn, "queues.signal", arguments) == "replayed"
    errors = rows(conn, "select step, step_try, kind, message, attempt from queues.error order by error_id")
    assert [row["step_try"] for row in errors] == [*range(11, 61)]
    assert {(row["step"], row["kind"], row["message"]) for row in errors} == {("charge", "Busy", "no")}
    do_chores(conn)
    again = claim_one(conn, queues=["run"])
    facts = call(conn, "queues.read_steps", {"worker_id": "w1", "held": held(again)})
    assert [(row["name"], row["number"]) for row in facts if row["fact"] == "try"] == [("charge", 60)]
    assert [row["result"] for row in facts if row["fact"] == "signal"] == ["text"]
    assert answer(conn, "queues.signal", arguments | {"key": "l"}) == "kept"


def test_events_are_delivered_in_their_order(old: Database) -> None:
    conn = old.connect()
    conn.execute("select queues.subscribe('all', 'http', 'https://example.com/', '{order.*}')")
    for number in range(3):
        conn.execute(
            "select queues.emit('order.paid', %s, aggregate_id => 'order-1')", [f'{{"n": {number}}}']
        )
    subscription = value(conn, "select subscription_id from queues.subscription")

    migrate(old.dsn)
    conn.execute("select queues.emit('order.paid', '{\"n\": 3}', aggregate_id => 'order-1')")

    arguments = {"dispatcher_id": "d1", "subscription_id": subscription}
    found = call(conn, "queues.claim_events", arguments)
    assert [row["data"]["n"] for row in found] == [0, 1, 2, 3]


def test_a_worker_and_its_lease_are_still_known(old: Database) -> None:
    conn = old.connect()
    conn.execute("select queues.register_worker('w1', hostname => 'here', timeout => '10 seconds')")
    task = claim_new(conn)

    migrate(old.dsn)
    install_test_clock(old.dsn)
    Clock(conn).advance(3600)
    (lost,) = call(conn, "queues.recover_workers", {})

    assert (lost["worker_id"], lost["recovered"]) == ("w1", 1)
    assert claim_one(conn, "w2")["task_id"] == task["task_id"]
