"""queues.set_retention, drop_retention and prune: what is kept for how long, and what goes then."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    Row,
    act,
    answer,
    call,
    claim,
    claim_one,
    counts,
    end,
    enqueue,
    enqueue_many,
    heartbeat,
    held,
    refused,
    rows,
    status,
    sweep,
    value,
)
from support.invariant import assert_invariant
from support.sessions import at_once

DAY = 86400
STATUSES = ["succeeded", "failed", "dead_letter", "cancelled", "deleted", "history", "messages", "steps"]
OF_TASKS = ["task", "task_key", "ready", "lease", "outcome", "deletion", "error", "act"]


def keep(conn: Connection, status: str, keep: str | None, type_prefix: str = "") -> None:
    call(conn, "queues.set_retention", {"status": status, "keep": keep, "type_prefix": type_prefix})


def keep_all(conn: Connection) -> None:
    conn.execute("delete from queues.retention")


def prune(conn: Connection, status: str, **arguments: Any) -> Row:
    (row,) = call(conn, "queues.prune", {"status": status, **arguments})
    return row


def prune_all(conn: Connection) -> int:
    return sum(prune(conn, status)["pruned"] for status in STATUSES)


def finished(conn: Connection, outcome: str = "succeeded", type: str = "default.work", **task: Any) -> UUID:  # noqa: A002
    task_id = enqueue(conn, type, **{"max_attempts": 1, **task})
    claimed = claim_one(conn, type_prefixes=[type])
    assert claimed["task_id"] == task_id
    if outcome == "cancelled":
        act(conn, "cancel", task_id)
    else:
        end(
            conn,
            claimed,
            "retry" if outcome == "dead_letter" else outcome,
            error="no" if outcome != "succeeded" else None,
        )
    assert status(conn, task_id)["status"] == outcome
    return task_id


def is_there(conn: Connection, task_id: UUID) -> bool:
    return bool(value(conn, "select exists (select from queues.task where task_id = %s)", [task_id]))


def test_the_policies_of_a_new_installation(tx: Connection) -> None:
    assert {
        row["status"]: row["keep"].days
        for row in rows(tx, "select * from queues.retention_policy where type_prefix = ''")
    } == {
        "succeeded": 7,
        "cancelled": 30,
        "failed": 90,
        "dead_letter": 90,
        "deleted": 30,
        "history": 90,
        "messages": 90,
        "steps": 7,
    }


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "dead_letter", "cancelled"])
def test_a_finished_task_goes_when_its_time_is_over_with_all_that_belongs_to_it(
    tx: Connection, clock: Clock, outcome: str
) -> None:
    keep(tx, outcome, "1 hour")
    task_id = finished(tx, outcome, idempotency_key="k")

    clock.advance(3600)
    assert prune(tx, outcome)["pruned"] == 0
    clock.advance(0.001)
    assert prune(tx, outcome)["pruned"] == 1

    assert not is_there(tx, task_id)
    left = counts(tx)
    assert {table: left[table] for table in OF_TASKS if left[table]} == {}


def test_each_status_has_a_policy_of_its_own(tx: Connection, clock: Clock) -> None:
    keep(tx, "succeeded", "1 hour")
    failed, succeeded = finished(tx, "failed"), finished(tx)
    clock.advance(2 * 3600)

    assert prune_all(tx) == 1
    assert (is_there(tx, failed), is_there(tx, succeeded)) == (True, False)


def test_the_longest_prefix_decides(tx: Connection, clock: Clock) -> None:
    keep(tx, "succeeded", "10 days")
    keep(tx, "succeeded", "1 hour", "mail.")
    keep(tx, "succeeded", None, "mail.audit.")
    types = ["billing.charge", "mail.send", "mail.audit.entry", "mailbox.open"]
    tasks = {type_: finished(tx, type=type_) for type_ in types}
    clock.advance(5 * DAY)

    assert prune_all(tx) == 1
    assert [type_ for type_ in types if not is_there(tx, tasks[type_])] == ["mail.send"]
    clock.advance(10 * DAY)
    assert prune_all(tx) == 2
    assert [type_ for type_ in types if is_there(tx, tasks[type_])] == ["mail.audit.entry"]


def test_without_a_policy_everything_is_kept(tx: Connection, clock: Clock) -> None:
    keep_all(tx)
    finished(tx)
    clock.advance(1000 * DAY)

    assert [prune(tx, status) for status in STATUSES] == [{"pruned": 0, "examined": 0, "next": None}] * len(
        STATUSES
    )


@pytest.mark.parametrize("state", ["pending", "scheduled", "running", "retrying"])
def test_what_waits_or_runs_is_never_removed_however_old_it_is(
    tx: Connection, clock: Clock, state: str
) -> None:
    for policy in STATUSES:
        keep(tx, policy, "1 minute")
    task_id = enqueue(tx, run_at=clock.after(9999 * DAY) if state == "scheduled" else None)
    if state == "retrying":
        end(tx, claim_one(tx), "retry")
    if state == "running":
        task = claim_one(tx, lease="1 day")
        for _ in range(9):
            clock.advance(DAY - 60)
            assert heartbeat(tx, held(task)) == ["held"]
    clock.advance(DAY - 60)

    assert prune_all(tx) == 0
    assert is_there(tx, task_id)


@pytest.mark.parametrize("state", ["waiting", "succeeded", "failed"])
def test_a_deleted_task_goes_by_the_policy_for_deleted_and_by_no_other(
    tx: Connection, clock: Clock, state: str
) -> None:
    keep(tx, "succeeded", "1 minute")
    keep(tx, "deleted", "1 day")
    task_id = (
        enqueue(tx, idempotency_key="k") if state == "waiting" else finished(tx, state, idempotency_key="k")
    )
    act(tx, "delete_task", task_id)

    clock.advance(DAY)
    assert prune_all(tx) == 0
    clock.advance(1)
    assert prune_all(tx) == 1
    assert counts(tx)["task"] == counts(tx)["deletion"] == counts(tx)["act"] == 0


def test_a_task_that_was_deleted_while_it_runs_stays_until_it_has_ended(tx: Connection, clock: Clock) -> None:
    keep(tx, "deleted", "1 minute")
    task_id = enqueue(tx)
    task = claim_one(tx, lease="1 day")
    act(tx, "delete_task", task_id)
    clock.advance(3600)

    assert prune(tx, "deleted") == {"pruned": 0, "examined": 1, "next": None}
    assert end(tx, task) == "accepted"
    assert prune(tx, "deleted")["pruned"] == 1


def test_a_key_is_free_again_when_its_task_has_gone(tx: Connection, clock: Clock) -> None:
    former = finished(tx, idempotency_key="k")
    clock.advance(8 * DAY)
    prune_all(tx)

    assert enqueue(tx, idempotency_key="k") != former


def test_the_key_of_another_task_is_not_touched(tx: Connection, clock: Clock) -> None:
    former = finished(tx, idempotency_key="k")
    act(tx, "delete_task", former)
    present = enqueue(tx, idempotency_key="k")
    clock.advance(31 * DAY)

    assert prune_all(tx) == 1
    assert enqueue(tx, idempotency_key="k") == present


def test_a_walk_in_steps_finds_everything_once(tx: Connection, clock: Clock) -> None:
    keep(tx, "succeeded", "1 hour")
    keep(tx, "succeeded", None, "kept.")
    enqueue_many(tx, [{"type": f"{'kept' if n % 3 else 'default'}.work"} for n in range(120)])
    for task in claim(tx, max_tasks=120, queues=["default", "kept"]):
        end(tx, task)
    clock.advance(2 * 3600)

    steps = [prune(tx, "succeeded", max_tasks=5)]
    while steps[-1]["next"]:
        steps.append(prune(tx, "succeeded", max_tasks=5, past=steps[-1]["next"]))

    assert sum(step["pruned"] for step in steps) == 40
    assert all(step["pruned"] <= 5 and step["examined"] <= 25 for step in steps)
    assert counts(tx)["task"] == 80


def test_a_walk_ends_where_the_young_begin(tx: Connection, clock: Clock) -> None:
    for task in _enqueue_and_claim(tx, 30):
        end(tx, task)
    clock.advance(8 * DAY)
    for task in _enqueue_and_claim(tx, 60):
        end(tx, task)

    first = prune(tx, "succeeded", max_tasks=6)
    assert first["pruned"] == 6
    last = prune(tx, "succeeded", max_tasks=12, past=first["next"])
    while last["next"]:
        last = prune(tx, "succeeded", max_tasks=12, past=last["next"])
    assert counts(tx)["task"] == 60


def _enqueue_and_claim(tx: Connection, count: int) -> list[Row]:
    enqueue_many(tx, [{"type": "default.work"}] * count)
    return claim(tx, max_tasks=count)


def test_a_dry_run_counts_and_removes_nothing(tx: Connection, clock: Clock) -> None:
    finished(tx)
    finished(tx, "failed")
    answer(tx, "queues.pause", {"queue": "default"})
    clock.advance(1000 * DAY)
    before = counts(tx)

    assert [prune(tx, status, dry_run=True)["pruned"] for status in STATUSES] == [1, 1, 0, 0, 0, 1, 0, 0]
    assert counts(tx) == before


def test_history_goes_too(tx: Connection, clock: Clock) -> None:
    answer(tx, "queues.pause", {"queue": "default"})
    call(tx, "queues.register_worker", {"worker_id": "w1"})
    clock.advance(91 * DAY)
    call(tx, "queues.recover_workers", {})
    answer(tx, "queues.resume", {"queue": "default"})

    assert prune(tx, "history")["pruned"] == 1
    assert [row["act"] for row in rows(tx, "select act from queues.queue_act")] == ["resumed"]
    clock.advance(91 * DAY)
    assert prune(tx, "history", max_tasks=1)["pruned"] == 1
    assert prune(tx, "history", max_tasks=1)["pruned"] == 1
    assert counts(tx)["act"] == counts(tx)["loss"] == 0


def test_it_does_not_wait_for_a_task_that_somebody_retries(db: Database) -> None:
    admin = db.connect()
    clock = Clock(admin)
    tasks = [finished(admin, "failed") for _ in range(2)]
    clock.advance(91 * DAY)
    operator = db.connect("holdfast_operator", autocommit=False)
    act(operator, "retry", tasks[0])

    assert prune(admin, "failed")["pruned"] == 1
    operator.commit()
    assert prune(admin, "failed")["pruned"] == 0
    assert status(admin, tasks[0])["status"] == "pending"
    assert_invariant(admin)


def test_it_does_not_wait_for_a_task_that_somebody_restores(db: Database) -> None:
    admin = db.connect()
    clock = Clock(admin)
    task_id = enqueue(admin)
    act(admin, "delete_task", task_id)
    clock.advance(31 * DAY)
    operator = db.connect("holdfast_operator", autocommit=False)
    act(operator, "restore_task", task_id)

    assert prune(admin, "deleted")["pruned"] == 0
    operator.commit()
    assert claim_one(admin)["task_id"] == task_id


@pytest.mark.parametrize("function", ["cancel", "retry", "delete_task", "restore_task"])
def test_a_task_that_has_gone_is_not_found(tx: Connection, clock: Clock, function: str) -> None:
    task_id = finished(tx, "failed")
    clock.advance(91 * DAY)
    prune_all(tx)

    with refused(tx, "QF404", str(task_id)):
        act(tx, function, task_id)


def test_pruners_at_once_remove_each_task_once(db: Database) -> None:
    admin = db.connect()
    clock = Clock(admin)
    for task in _enqueue_and_claim(admin, 300):
        end(admin, task)
    clock.advance(8 * DAY)

    sessions = [db.connect("holdfast_worker") for _ in range(6)]
    found = at_once(lambda conn: prune(conn, "succeeded"), sessions)

    assert sum(step["pruned"] for step in found) == 300
    assert counts(admin)["task"] == 0


def test_a_late_report_about_a_task_that_has_gone_is_lost(tx: Connection, clock: Clock) -> None:
    enqueue(tx, max_attempts=1)
    task = claim_one(tx)
    clock.advance(31)
    sweep(tx)
    clock.advance(91 * DAY)
    prune_all(tx)

    assert end(tx, task) == "lost"
    assert heartbeat(tx, held(task)) == ["lost"]


def test_a_policy_is_changed_and_removed(tx: Connection, clock: Clock) -> None:
    keep(tx, "succeeded", "2 hours", "mail.")
    keep(tx, "succeeded", "3 hours", "mail.")
    (policy,) = rows(tx, "select * from queues.retention_policy where type_prefix <> ''")
    assert policy == {
        "status": "succeeded",
        "type_prefix": "mail.",
        "keep": timedelta(hours=3),
        "changed_at": clock.now,
        "changed_by": value(tx, "select session_user::text"),
    }
    dropped = [
        answer(tx, "queues.drop_retention", {"status": "succeeded", "type_prefix": "mail."}) for _ in range(2)
    ]
    assert dropped == [True, False]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"status": "pending"}, "pending"),
        ({"status": None}, "null"),
        ({"keep": "59 seconds"}, "keep"),
        ({"keep": "-1 day"}, "keep"),
        ({"type_prefix": None}, "type_prefix"),
        ({"type_prefix": "x" * 201}, "type_prefix"),
        ({"status": "history", "type_prefix": "mail."}, "history"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(tx: Connection, arguments: Row, named: str) -> None:
    with refused(tx, "QF400", named):
        call(tx, "queues.set_retention", {"status": "succeeded", "keep": "1 day", **arguments})


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"status": "running"}, "running"), ({"max_tasks": 0}, "max_tasks"), ({"max_tasks": None}, "max_tasks")],
)
def test_a_prune_that_cannot_be_meant_is_refused(tx: Connection, arguments: Row, named: str) -> None:
    with refused(tx, "QF400", named):
        prune(tx, **{"status": "succeeded", **arguments})


def passes(conn: Connection, status: str, max_tasks: int = 10) -> tuple[int, int]:
    """A pass as the leader makes it: how many were pruned, and how many examined."""
    pruned = examined = 0
    while True:
        step = prune(conn, status, max_tasks=max_tasks)
        pruned, examined = pruned + step["pruned"], examined + step["examined"]
        if step["next"] is None:
            return pruned, examined


def kept_and_pruned(conn: Connection, clock: Clock) -> UUID:
    """60 failed tasks, which stay for 90 days, and a younger one that goes after seven; and a full pass."""
    for _ in range(60):
        finished(conn, "failed")
    clock.advance(8 * DAY)
    task_id = finished(conn)
    passes(conn, "succeeded")
    return task_id


def test_a_pass_does_not_walk_again_over_what_the_last_one_has_kept(tx: Connection, clock: Clock) -> None:
    task_id = kept_and_pruned(tx, clock)
    assert passes(tx, "succeeded") == (0, 61)

    clock.advance(60)
    assert passes(tx, "succeeded")[1] <= 10
    tx.execute(
        "update queues.outcome set finished_at = finished_at - interval '8 days' where status = 'succeeded'"
    )
    assert passes(tx, "succeeded")[0] == 1
    assert not is_there(tx, task_id)


def test_a_task_that_ended_late_goes_within_a_day(tx: Connection, clock: Clock) -> None:
    late = enqueue(tx, "late.work")
    kept_and_pruned(tx, clock)
    passes(tx, "succeeded")
    (task,) = claim(tx, type_prefixes=["late."])
    end(tx, task)
    tx.execute(
        "update queues.outcome set finished_at = finished_at - interval '8 days' where status = 'succeeded'"
    )

    passes(tx, "succeeded")
    assert is_there(tx, late)
    clock.advance(DAY)
    passes(tx, "succeeded")
    passes(tx, "succeeded")

    assert not is_there(tx, late)


@pytest.mark.parametrize("change", ["set", "drop"])
def test_after_a_change_of_the_policies_a_pass_begins_at_the_oldest(
    tx: Connection, clock: Clock, change: str
) -> None:
    keep(tx, "succeeded", "1 year", "late.")
    late = finished(tx, type="late.work")
    kept_and_pruned(tx, clock)
    passes(tx, "succeeded")
    passes(tx, "succeeded")
    assert is_there(tx, late)

    if change == "set":
        keep(tx, "succeeded", "1 day", "late.")
    else:
        tx.execute("select queues.drop_retention('succeeded', 'late.')")
    passes(tx, "succeeded")

    assert not is_there(tx, late)


def test_a_second_session_does_not_wait_for_a_pass(db: Database) -> None:
    first, second = db.connect(autocommit=False), db.connect()
    prune(second, "succeeded")
    prune(first, "succeeded")
    assert prune(second, "succeeded") == {"pruned": 0, "examined": 0, "next": None}


def test_steps_that_were_removed_are_not_walked_over_each_time(tx: Connection, clock: Clock) -> None:
    for n in range(30):
        enqueue(tx, "run.work")
        task = claim_one(tx, queues=["run"])
        end(tx, task, steps=[{"name": f"s{n}", "number": 1, "kind": "step", "result": n}])
    keep(tx, "succeeded", None)
    clock.advance(8 * DAY)
    assert passes(tx, "steps")[0] == 30
    passes(tx, "steps")
    assert value(tx, "select past from queues.retention_mark where status = 'steps'") > UUID(int=0)


def test_vacuum_comes_early_to_the_tables_that_retention_empties(tx: Connection) -> None:
    found = rows(
        tx,
        "select reloptions from pg_class where oid in ('queues.task'::regclass, 'queues.outcome'::regclass)",
    )
    wanted = {"autovacuum_vacuum_scale_factor=0.01", "autovacuum_vacuum_insert_scale_factor=0.02"}
    assert [set(row["reloptions"]) >= wanted for row in found] == [True, True]
