"""enqueue_unique: one task per key among those that wait or have not ended, and debounced tasks."""

from typing import Any

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    Row,
    act,
    call,
    claim,
    claim_one,
    end,
    enqueue_many,
    held,
    refused,
    release,
    rows,
    status,
)


def unique(tx: Connection, kind: str | None = "waiting", key: str | None = "k", **more: Any) -> Row:
    given = {"type": "work.sync", "key": key, "unique": kind, **more}
    named = ", ".join(f'"{name}" => %({name})s' for name in given)
    with tx.cursor() as cursor:
        found = cursor.execute(f"select * from queues.enqueue_unique({named})".encode(), given).fetchone()
    assert found
    return {"task_id": found[0], "created": found[1]}


def debounced(tx: Connection, payload: str = "{}", **more: Any) -> Any:
    given = {"debounce": "5 s", "debounce_max": "12 s", **more}
    return unique(tx, None, payload=payload, **given)["task_id"]


def _give_back(tx: Connection, task: Row, how: str) -> None:
    if how == "released":
        assert release(tx, held(task)) == ["released"]
    else:
        end(tx, task, "snooze")


def test_a_waiting_task_with_the_key_is_returned(tx: Connection) -> None:
    first, again, other = unique(tx), unique(tx), unique(tx, key="other")
    assert (again, other["created"]) == ({**first, "created": False}, True)


def test_a_retrying_task_waits(tx: Connection) -> None:
    first = unique(tx)
    end(tx, claim_one(tx, queues=["work"]), "retry")
    assert unique(tx)["task_id"] == first["task_id"]


@pytest.mark.parametrize(("kind", "created"), [("waiting", True), ("unfinished", False)])
def test_a_running_task_counts_only_for_unfinished(tx: Connection, kind: str, created: bool) -> None:
    unique(tx)
    claim_one(tx, queues=["work"])
    assert unique(tx, kind)["created"] == created


@pytest.mark.parametrize("kind", ["waiting", "unfinished"])
@pytest.mark.parametrize("how", ["succeeded", "failed", "cancel", "delete_task"])
def test_a_task_that_has_ended_frees_its_key(tx: Connection, kind: str, how: str) -> None:
    first = unique(tx, kind)
    if how in ("cancel", "delete_task"):
        act(tx, how, first["task_id"])
    else:
        end(tx, claim_one(tx, queues=["work"]), how)
    again = unique(tx, kind)
    assert (again["created"], unique(tx, kind)["task_id"]) == (True, again["task_id"])


def test_of_debounced_tasks_the_latest_arguments_win(tx: Connection, clock: Clock) -> None:
    first = debounced(tx, '{"n": 1}')
    clock.advance(3)
    second = debounced(tx, '{"n": 2}')

    assert status(tx, first)["status"] == "cancelled"
    assert status(tx, second)["run_at"] == clock.after(5)
    clock.advance(5)
    assert claim_one(tx, queues=["work"])["payload"] == {"n": 2}


def test_a_debounced_task_runs_at_the_latest_after_the_maximum(tx: Connection, clock: Clock) -> None:
    end_of_patience = clock.after(12)
    last = debounced(tx)
    for _ in range(3):
        clock.advance(3)
        last = debounced(tx)
    assert status(tx, last)["run_at"] == end_of_patience


def test_a_debounced_task_that_has_begun_is_not_replaced(tx: Connection, clock: Clock) -> None:
    first = debounced(tx)
    clock.advance(5)
    claim_one(tx, queues=["work"])
    second = debounced(tx)
    assert [status(tx, one)["status"] for one in (first, second)] == ["claimed", "scheduled"]
    assert status(tx, second)["run_at"] == clock.after(5)


@pytest.mark.parametrize("how", ["released", "snoozed"])
def test_a_debounced_task_that_is_given_back_does_not_overtake_a_later_one(
    tx: Connection, clock: Clock, how: str
) -> None:
    first = debounced(tx, '{"n": 1}')
    clock.advance(5)
    claimed = claim_one(tx, queues=["work"])
    second = debounced(tx, '{"n": 2}')
    clock.advance(5)
    later = claim_one(tx, "w2", queues=["work"])

    _give_back(tx, claimed, how)

    assert later["task_id"] == second
    assert status(tx, first)["status"] == "cancelled"
    assert claim(tx, queues=["work"]) == []
    told = rows(
        tx, "select event_type from queues.task_event where task_id = %s order by occurred_at", [first]
    )
    assert {"replaced", how, "cancelled"} <= {row["event_type"] for row in told}


@pytest.mark.parametrize("how", ["released", "snoozed"])
def test_a_debounced_task_that_is_given_back_runs_if_there_is_no_later_one(
    tx: Connection, clock: Clock, how: str
) -> None:
    first = debounced(tx)
    clock.advance(5)
    claimed = claim_one(tx, queues=["work"])
    _give_back(tx, claimed, how)
    assert claim_one(tx, queues=["work"])["task_id"] == first


def test_a_debounced_task_that_a_person_retries_runs_although_there_is_a_later_one(
    tx: Connection, clock: Clock
) -> None:
    first = debounced(tx)
    clock.advance(5)
    claimed = claim_one(tx, queues=["work"])
    debounced(tx)
    _give_back(tx, claimed, "released")
    act(tx, "retry", first)
    _give_back(tx, claim_one(tx, queues=["work"]), "released")
    assert claim_one(tx, queues=["work"])["task_id"] == first


def test_a_debounced_task_that_has_failed_once_and_is_given_back_is_not_replaced(
    tx: Connection, clock: Clock
) -> None:
    first = debounced(tx)
    clock.advance(5)
    end(tx, claim_one(tx, queues=["work"]), "retry", run_at=str(clock.after(1)))
    clock.advance(1)
    again = claim_one(tx, queues=["work"])
    debounced(tx)
    _give_back(tx, again, "released")
    assert status(tx, first)["status"] == "retrying"


@pytest.mark.parametrize(
    "given",
    [
        {"key": None},
        {"kind": "always"},
        {"debounce": "1 s"},
        {"kind": None},
        {"kind": None, "debounce": "5 s", "debounce_max": "1 s"},
    ],
)
def test_what_makes_no_sense_is_refused(tx: Connection, given: dict[str, Any]) -> None:
    with refused(tx, "QF400"):
        unique(tx, **given)


def test_keys_belong_to_a_type(tx: Connection) -> None:
    unique(tx)
    assert unique(tx, type="work.other")["created"]
    assert call(tx, "queues.clock", {})


@pytest.mark.parametrize("place", [1, 2])
def test_an_error_in_a_batch_names_its_place_whichever_tasks_are_one(tx: Connection, place: int) -> None:
    element: Row = {"type": "work.sync", "unique": "waiting", "idempotency_key": "k"}
    tasks: list[Row] = [element, element, {"type": "work.sync"}]
    tasks[place] = {**tasks[place], "priority": 5000}
    with refused(tx, "QF400", f"tasks[{place}].priority"):
        enqueue_many(tx, tasks)


def test_a_debounced_task_that_has_failed_once_is_not_replaced(tx: Connection, clock: Clock) -> None:
    first = debounced(tx)
    clock.advance(5)
    end(tx, claim_one(tx, queues=["work"]), "retry")

    second = debounced(tx)

    assert second != first
    assert status(tx, first)["status"] == "retrying"
