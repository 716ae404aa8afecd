"""queues.finish and tokens: a result counts once, and only from the holder of the lease."""

from typing import Any

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    act,
    claim,
    claim_new,
    claim_one,
    counts,
    end,
    finish,
    heartbeat,
    held,
    status,
    sweep,
)


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_repeating_an_accepted_call_changes_nothing_and_says_so(
    tx: Connection, clock: Clock, ending: str
) -> None:
    task = claim_new(tx)
    again: dict[str, Any] = {"status": ending, "run_at": clock.after(60), "error": "broke"}
    assert end(tx, task, **again) == "accepted"
    before, told = counts(tx), status(tx, task["task_id"])
    clock.advance(5)

    assert end(tx, task, **again) == "already_done"
    assert (counts(tx), status(tx, task["task_id"])) == (before, told)


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_it_says_already_done_also_when_the_task_has_gone_on(
    tx: Connection, clock: Clock, ending: str
) -> None:
    task = claim_new(tx)
    end(tx, task, ending, run_at=clock.now)
    if ending in {"failed", "cancelled"}:
        act(tx, "retry", task["task_id"])
    later = claim(tx)

    assert end(tx, task, ending, run_at=clock.now) == "already_done"
    assert heartbeat(tx, held(*later)) == ["held"] * len(later)


def test_an_accepted_retry_of_the_last_attempt_can_be_repeated(tx: Connection) -> None:
    task = claim_new(tx, max_attempts=1)
    end(tx, task, "retry")

    assert end(tx, task, "retry") == "already_done"


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_with_a_wrong_token_nothing_changes(tx: Connection, clock: Clock, ending: str) -> None:
    task = claim_new(tx)
    before, told = counts(tx), status(tx, task["task_id"])

    for token in (task["token"] + 1, task["token"] - 1, 0, -1, 2**62):
        assert end(tx, {**task, "token": token}, ending) == "lost"
    assert (counts(tx), status(tx, task["task_id"])) == (before, told)


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_another_worker_cannot_settle_it_even_with_the_token(tx: Connection, ending: str) -> None:
    task = claim_new(tx)

    assert end(tx, task, ending, worker_id="somebody else") == "lost"
    assert end(tx, task, ending) == "accepted"


def test_a_lease_that_ended_but_was_not_taken_away_still_counts(tx: Connection, clock: Clock) -> None:
    task = claim_new(tx)
    clock.advance(3600)

    assert end(tx, task) == "accepted"


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_after_it_was_put_back_the_former_holder_has_lost_it(
    tx: Connection, clock: Clock, ending: str
) -> None:
    task = claim_new(tx)
    clock.advance(31)
    sweep(tx)
    before, told = counts(tx), status(tx, task["task_id"])

    assert end(tx, task, ending) == "lost"
    assert (counts(tx), status(tx, task["task_id"])) == (before, told)


def test_the_second_holders_result_stands(tx: Connection, clock: Clock) -> None:
    former = claim_new(tx)
    clock.advance(31)
    sweep(tx)
    present = claim_one(tx)

    assert end(tx, former, result="of the former") == "lost"
    assert end(tx, present, result="of the present") == "accepted"
    assert end(tx, former, result="of the former") == "lost"
    assert status(tx, former["task_id"])["result"] == "of the present"


def test_the_same_worker_that_claimed_it_again_is_fenced_from_its_own_past(
    tx: Connection, clock: Clock
) -> None:
    former = claim_new(tx)
    clock.advance(31)
    sweep(tx)
    present = claim_one(tx)

    assert finish(tx, [*held(former, status="failed"), *held(present, status="succeeded")]) == [
        "lost",
        "accepted",
    ]
    assert status(tx, former["task_id"])["status"] == "succeeded"


def test_a_late_finish_of_a_dead_letter_is_lost(tx: Connection, clock: Clock) -> None:
    task = claim_new(tx, max_attempts=1)
    clock.advance(31)
    sweep(tx)

    assert end(tx, task) == "lost"
    assert status(tx, task["task_id"])["status"] == "dead_letter"


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_a_late_finish_does_not_change_a_cancelled_task(tx: Connection, ending: str) -> None:
    task = claim_new(tx)
    act(tx, "cancel", task["task_id"], reason="no longer needed")

    assert end(tx, task, ending, result="late") == "cancelled"

    now = status(tx, task["task_id"])
    assert (now["status"], now["reason"], now["result"]) == ("cancelled", "no longer needed", None)


def test_a_cancelled_task_that_was_retried_is_still_cancelled_for_its_former_holder(tx: Connection) -> None:
    task = claim_new(tx)
    act(tx, "cancel", task["task_id"])
    act(tx, "retry", task["task_id"])

    assert end(tx, task) == "cancelled"
    assert status(tx, task["task_id"])["status"] == "pending"
