"""queues.retry: a fresh set of attempts for what failed, died or was cancelled."""

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    act,
    claim,
    claim_one,
    end,
    enqueue,
    events,
    heartbeat,
    held,
    refused,
    status,
    sweep,
)


def _ended(tx: Connection, clock: Clock, ending: str) -> object:
    task_id = enqueue(tx, max_attempts=1, run_at=clock.after(-60))
    if ending == "waiting":
        act(tx, "cancel", task_id)
    elif ending == "expired":
        claim(tx)
        clock.advance(31)
        sweep(tx)
    else:
        end(tx, claim_one(tx), ending, error="broke")
    return task_id


@pytest.mark.parametrize("ending", ["failed", "retry", "cancelled", "waiting", "expired"])
def test_it_runs_again_from_now_with_all_its_attempts(tx: Connection, clock: Clock, ending: str) -> None:
    task_id = _ended(tx, clock, ending)
    clock.advance(5)

    assert act(tx, "retry", task_id) == "pending"

    task = status(tx, task_id)
    assert (task["status"], task["attempt"], task["run_at"]) == ("pending", 0, clock.now)
    assert (task["finished_at"], task["result"], task["reason"]) == (None, None, None)
    assert claim_one(tx)["attempt"] == 1


def test_the_errors_of_its_former_life_stay(tx: Connection, clock: Clock) -> None:
    task_id = _ended(tx, clock, "failed")

    act(tx, "retry", task_id)

    assert status(tx, task_id)["last_error"] == "broke"


def test_what_succeeded_is_not_run_again(tx: Connection, clock: Clock) -> None:
    task_id = _ended(tx, clock, "succeeded")

    with refused(tx, "QF412", str(task_id), "succeeded"):
        act(tx, "retry", task_id)


@pytest.mark.parametrize("state", ["scheduled", "pending", "retrying", "claimed", "running"])
def test_what_has_not_ended_cannot_be_retried(tx: Connection, clock: Clock, state: str) -> None:
    task_id = enqueue(tx, run_at=clock.after(9 if state == "scheduled" else 0))
    if state in {"retrying", "claimed", "running"}:
        task = claim_one(tx)
        if state == "retrying":
            end(tx, task, "retry")
        elif state == "running":
            heartbeat(tx, held(task, started_at=clock.now))

    with refused(tx, "QF412", str(task_id), state):
        act(tx, "retry", task_id)


def test_a_deleted_task_has_to_be_restored_first(tx: Connection, clock: Clock) -> None:
    task_id = _ended(tx, clock, "failed")
    act(tx, "delete_task", task_id)

    with refused(tx, "QF412", "deleted"):
        act(tx, "retry", task_id)
    act(tx, "restore_task", task_id)
    assert act(tx, "retry", task_id) == "pending"


def test_an_unknown_task_is_refused(tx: Connection) -> None:
    with refused(tx, "QF404", "there is no task"):
        act(tx, "retry", "00000000-0000-7000-8000-000000000000")


def test_actor_and_reason_are_recorded(tx: Connection, clock: Clock) -> None:
    task_id = _ended(tx, clock, "failed")
    clock.advance(1)
    act(tx, "retry", task_id, reason="mended")

    event = events(tx, task_id)[-1]
    assert (event["event_type"], event["actor"], event["reason"]) == ("retried", tx.info.user, "mended")
    assert event["data"]["status"] == "failed"
