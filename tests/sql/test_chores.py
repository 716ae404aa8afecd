"""queues.do_chores: what the engine has left to do, in its own name, in the way of nothing else."""

from typing import Any
from uuid import UUID

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    Row,
    act,
    answer,
    call,
    claim,
    claim_one,
    do_chores,
    end,
    enqueue,
    refused,
    rows,
    status,
    sweep,
    value,
)
from support.health import line

RAISE = "create function pg_temp.planted() returns trigger language plpgsql as $$ begin {} end $$"


def after(
    tx: Connection, *tasks: Any, count: int = 1, condition: str = "succeeded", **more: Any
) -> list[Any]:
    new = [{"type": "next.work", "after": list(tasks), "when": condition, **more}] * count
    return [row["task_id"] for row in call(tx, "queues.enqueue_many", {"tasks": new})]


def fail(tx: Connection, task_id: UUID) -> None:
    task = claim_one(tx, queues=["first"])
    assert task["task_id"] == task_id
    end(tx, task, "failed")
    call(tx, "queues.wake_joined", {"task_ids": [task_id]})


def parent_with_child(tx: Connection) -> tuple[Row, Any]:
    enqueue(tx, "first.parent")
    parent = claim_one(tx, queues=["first"])
    (child,) = call(
        tx,
        "queues.start_children",
        {
            "worker_id": "w1",
            "held": {
                "task_id": parent["task_id"],
                "token": parent["token"],
                "name": "s",
                "number": 1,
                "awaited": True,
            },
            "tasks": [{"type": "child.work"}],
        },
    )
    return parent, child["task_id"]


def chore(tx: Connection, kind: str, max_chores: int = 1000) -> int:
    return int(answer(tx, "queues.do_chores", {"kind": kind, "max_chores": max_chores}))


def statuses(tx: Connection, task_ids: list[Any]) -> set[str]:
    query = "select distinct status from queues.task_status where task_id = any(%s)"
    return {row["status"] for row in rows(tx, query, [task_ids])}


def refuse_outcomes_of(tx: Connection, task_id: Any) -> None:
    """As a trigger of the installation might."""
    body = f"if new.task_id = '{task_id}' then raise 'planted'; end if; return new;"
    tx.execute(RAISE.format(body).encode())
    tx.execute(
        "create trigger planted before insert on queues.outcome for each row "
        "execute function pg_temp.planted()"
    )


@pytest.mark.parametrize("kind", ["", "sweep", None])
def test_an_unknown_kind_is_refused(tx: Connection, kind: Any) -> None:
    with refused(tx, "QF400", "kind"):
        tx.execute("select queues.do_chores(%s)", [kind])


@pytest.mark.parametrize("count", [0, 10001, None])
def test_the_number_of_chores_is_limited(tx: Connection, count: Any) -> None:
    with refused(tx, "QF400", "max_chores"):
        tx.execute("select queues.do_chores('wake', %s)", [count])


def test_everything_goes_on_in_a_database_that_publishes_all_tables(tx: Connection, clock: Clock) -> None:
    """PostgreSQL refuses to delete from a published table that has no key, even if it has no rows."""
    tx.execute("create publication everything for all tables")
    parent, child = parent_with_child(tx)
    waiting = clock.after(3600)
    end(tx, parent, "suspend", waits=[{"name": "s", "until": waiting, "policy": "all"}], run_at=waiting)
    enqueue(tx, "lost.work")
    (lost,) = claim(tx, "dead", queues=["lost"])
    clock.advance(31)

    assert sweep(tx) == {"recovered": 1, "dead": 0}
    assert claim_one(tx, queues=["lost"])["task_id"] == lost["task_id"]
    end(tx, claim_one(tx, queues=["child"]))
    do_chores(tx)
    assert claim_one(tx, queues=["first"])["task_id"] == parent["task_id"]
    one = enqueue(tx, "other.work")
    after(tx, one)
    act(tx, "cancel", one)
    do_chores(tx)
    assert rows(tx, "select from queues.chore") == []
    assert status(tx, child)["status"] == "succeeded"
    assert value(tx, "select queues.tidy_lanes()") >= 0


def test_an_error_in_a_chore_does_not_stop_the_recovery_of_leases(tx: Connection, clock: Clock) -> None:
    one = enqueue(tx, "first.work")
    (dependant,) = after(tx, one)
    fail(tx, one)
    enqueue(tx, "lost.work")
    claim(tx, "dead", queues=["lost"])
    clock.advance(31)
    refuse_outcomes_of(tx, dependant)
    with refused(tx, "P0001", "planted"):
        do_chores(tx)

    assert call(tx, "queues.sweep", {}) == [{"recovered": 1, "dead": 0}]
    assert claim_one(tx, queues=["lost"])
    assert status(tx, dependant)["status"] == "suspended"


def test_a_chore_that_fails_does_not_keep_the_others_from_being_done(tx: Connection) -> None:
    one = enqueue(tx, "first.work")
    dependants = after(tx, one, count=40)
    fail(tx, one)
    refuse_outcomes_of(tx, dependants[3])

    with refused(tx, "P0001", "planted"):
        chore(tx, "cancel")
    assert chore(tx, "cancel", max_chores=3) == 3
    with refused(tx, "P0001", "planted"):
        chore(tx, "cancel", max_chores=1)
    tx.execute("select queues.postpone_chore('cancel', 'planted')")

    assert chore(tx, "cancel", max_chores=36) == 36
    assert statuses(tx, dependants) == {"cancelled", "suspended"}
    assert rows(tx, "select task_id, error from queues.chore where kind = 'c'") == [
        {"task_id": dependants[3], "error": "planted"}
    ]


def test_health_says_why_a_chore_failed(tx: Connection, clock: Clock) -> None:
    one = enqueue(tx, "first.work")
    after(tx, one)
    fail(tx, one)
    tx.execute("select queues.postpone_chore('cancel', 'planted')")
    chore(tx, "wake")
    clock.advance(61)

    found = line(tx, "chores")

    assert (found["level"], found["error"]) == ("red", "planted")
    assert found["message"].startswith(
        "1 chore of the engine (runs to wake, tasks to cancel) waits, the first for "
    )


def test_what_a_failure_cancels_is_signed_by_the_engine(tx: Connection) -> None:
    one = enqueue(tx, "first.work")
    (two,) = after(tx, one)
    act(tx, "cancel", one)
    assert status(tx, two)["status"] == "suspended"

    do_chores(tx)

    signed = rows(tx, "select actor from queues.act where task_id = %s and act = 'cancelled'", [two])
    assert signed == [{"actor": "holdfast"}]


def test_cancelling_goes_on_to_children_and_dependants_up_to_the_number_in_one_call(tx: Connection) -> None:
    first = enqueue(tx, "first.work")
    chain = [first]
    for _ in range(6):
        chain += after(tx, chain[-1])
    act(tx, "cancel", first)

    assert chore(tx, "cancel", max_chores=4) == 4
    assert chore(tx, "cancel", max_chores=4) == 2
    assert statuses(tx, chain) == {"cancelled"}


def test_dependants_that_were_still_to_be_cancelled_come_back_with_a_retry(tx: Connection) -> None:
    one = enqueue(tx, "first.work")
    dependants = after(tx, one, count=30)
    fail(tx, one)
    assert chore(tx, "cancel", max_chores=10) == 10  # the others are still on the list

    act(tx, "retry", one)
    do_chores(tx)
    assert statuses(tx, dependants) == {"suspended"}
    end(tx, claim_one(tx, queues=["first"]))
    call(tx, "queues.wake_joined", {"task_ids": [one]})
    do_chores(tx)

    assert len(claim(tx, queues=["next"], max_tasks=100)) == 30
    assert rows(tx, "select from queues.chore") == []


@pytest.mark.full
@pytest.mark.timeout(600)
def test_25_000_dependants_come_back_with_a_retry(tx: Connection) -> None:
    one = enqueue(tx, "first.work")
    dependants = after(tx, one, count=25000)
    fail(tx, one)
    chore(tx, "cancel")

    act(tx, "retry", one)
    for _ in range(30):
        do_chores(tx)
    end(tx, claim_one(tx, queues=["first"]))
    call(tx, "queues.wake_joined", {"task_ids": [one]})
    for _ in range(30):
        do_chores(tx)

    assert statuses(tx, dependants) == {"pending"}


def test_children_that_were_still_to_be_cancelled_go_on_with_a_retry(tx: Connection) -> None:
    parent, child = parent_with_child(tx)
    end(tx, parent, "failed")

    act(tx, "retry", parent["task_id"])
    do_chores(tx)

    assert status(tx, child)["status"] == "pending"
    assert rows(tx, "select from queues.chore where kind = 'c'") == []


@pytest.mark.parametrize(("how", "becomes"), [("succeeded", "pending"), ("failed", "cancelled")])
def test_a_retried_task_waits_again_for_the_one_that_it_comes_after(
    tx: Connection, how: str, becomes: str
) -> None:
    one = enqueue(tx, "first.work")
    (two,) = after(tx, one)
    act(tx, "cancel", two)

    assert act(tx, "retry", two) == "suspended"

    do_chores(tx)
    assert status(tx, two)["status"] == "suspended"
    end(tx, claim_one(tx, queues=["first"]), how)
    do_chores(tx)
    do_chores(tx)
    assert status(tx, two)["status"] == becomes


def test_a_retried_task_keeps_the_condition_ended(tx: Connection) -> None:
    one = enqueue(tx, "first.work")
    (two,) = after(tx, one, condition="ended")
    act(tx, "cancel", two)
    act(tx, "retry", two)
    fail(tx, one)
    do_chores(tx)
    assert status(tx, two)["status"] == "pending"


def test_a_task_that_is_retried_after_those_before_it_have_ended_runs_now(tx: Connection) -> None:
    one = enqueue(tx, "first.work")
    (two,) = after(tx, one)
    fail(tx, one)
    do_chores(tx)
    assert status(tx, two)["status"] == "cancelled"

    assert act(tx, "retry", two) == "pending"
    do_chores(tx)
    assert claim_one(tx, queues=["next"])["task_id"] == two


def test_a_retry_of_one_does_not_excuse_the_failure_of_another(tx: Connection) -> None:
    one, other = enqueue(tx, "first.work"), enqueue(tx, "first.work")
    (last,) = after(tx, one, other)
    fail(tx, one)
    fail(tx, other)
    do_chores(tx)

    act(tx, "retry", other)
    do_chores(tx)
    do_chores(tx)

    assert status(tx, last)["status"] == "cancelled"


def test_a_rescheduled_task_waits_for_its_time_and_for_the_one_before_it(
    tx: Connection, clock: Clock
) -> None:
    one = enqueue(tx, "first.work")
    (two,) = after(tx, one)

    act(tx, "reschedule", two, run_at=clock.after(60))
    clock.advance(61)
    assert claim(tx, queues=["next"]) == []
    end(tx, claim_one(tx, queues=["first"]))
    do_chores(tx)

    assert claim_one(tx, queues=["next"])["task_id"] == two


def test_a_new_time_stays_when_the_task_before_it_ends(tx: Connection, clock: Clock) -> None:
    one = enqueue(tx, "first.work")
    (two,) = after(tx, one)
    act(tx, "reschedule", two, run_at=clock.after(60))

    end(tx, claim_one(tx, queues=["first"]))
    do_chores(tx)

    assert claim(tx, queues=["next"]) == []
    clock.advance(60)
    assert claim_one(tx, queues=["next"])["task_id"] == two


@pytest.mark.parametrize("reason", ["after: lunch", "its parent {one} ended failed"])
def test_what_a_client_writes_is_no_cause(tx: Connection, reason: str) -> None:
    one = enqueue(tx, "first.work")
    (two,) = after(tx, one)
    act(tx, "cancel", two, reason=reason.format(one=one))
    fail(tx, one)
    do_chores(tx)

    act(tx, "retry", one)
    do_chores(tx)

    assert status(tx, two)["status"] == "cancelled"


def test_a_child_that_was_cancelled_by_hand_stays_cancelled(tx: Connection) -> None:
    parent, child = parent_with_child(tx)
    act(tx, "cancel", child, reason=f"its parent {parent['task_id']} ended failed")
    end(tx, parent, "failed")
    do_chores(tx)

    act(tx, "retry", parent["task_id"])
    do_chores(tx)

    assert status(tx, child)["status"] == "cancelled"


def test_joins_are_looked_at_in_turn(tx: Connection) -> None:
    before = [enqueue(tx, "first.work") for _ in range(5)]
    last = [after(tx, one)[0] for one in before]
    for _ in before:
        end(tx, claim_one(tx, queues=["first"]))
    tx.execute("delete from queues.chore")  # as if the worker had died before it could leave them

    looks = [chore(tx, "join", max_chores=2) for _ in range(3)]

    assert looks == [2, 2, 1]
    assert statuses(tx, last) == {"pending"}


def test_nothing_is_due_where_nothing_waits(tx: Connection) -> None:
    enqueue(tx)
    assert answer(tx, "queues.due_chores", {}) == []


def test_what_an_ended_run_still_seems_to_wait_for_is_removed(tx: Connection, clock: Clock) -> None:
    """A worker that reports a success without steps leaves the row; workers would ask for joins for ever."""
    parent, _ = parent_with_child(tx)
    until = clock.after(60)
    end(tx, parent, "suspend", waits=[{"name": "s", "until": until, "policy": "all"}], run_at=until)
    do_chores(tx)
    clock.advance(61)
    end(tx, claim_one(tx, queues=["first"]))
    assert rows(tx, "select from queues.wait where on_task is not null") != []

    do_chores(tx)

    assert rows(tx, "select from queues.wait") == []
    assert value(tx, "select queues.wake_joined('{}')") is None
