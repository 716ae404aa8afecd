"""Tasks that queues.finish puts back: retries, their back-off and their end, and snoozes."""

import pytest

from support.clock import Clock
from support.engine import Connection, claim, claim_new, claim_one, end, enqueue, rows, status, value


def test_retry_puts_it_back_until_its_time(tx: Connection, clock: Clock) -> None:
    task = claim_new(tx)

    assert end(tx, task, "retry", error="broke", run_at=clock.after(60)) == "accepted"

    now = status(tx, task["task_id"])
    assert (now["status"], now["run_at"], now["attempt"]) == ("retrying", clock.after(60), 1)
    assert claim(tx) == []
    clock.advance(60)
    assert claim_one(tx)["attempt"] == 2


def test_retry_of_the_last_attempt_is_a_dead_letter(tx: Connection, clock: Clock) -> None:
    task = claim_new(tx, max_attempts=1)

    assert end(tx, task, "retry", error="broke", run_at=clock.after(60)) == "accepted"

    now = status(tx, task["task_id"])
    assert (now["status"], now["finished_at"], now["last_error"]) == ("dead_letter", clock.now, "broke")


def test_snooze_puts_it_back_and_uses_no_attempt(tx: Connection, clock: Clock) -> None:
    task = claim_new(tx, max_attempts=1)

    assert end(tx, task, "snooze", run_at=clock.after(60)) == "accepted"

    now = status(tx, task["task_id"])
    assert (now["status"], now["attempt"], now["run_at"]) == ("scheduled", 0, clock.after(60))
    clock.advance(60)
    assert claim_one(tx)["attempt"] == 1


def test_every_failed_attempt_is_recorded(tx: Connection, clock: Clock) -> None:
    enqueue(tx, max_attempts=3)
    for n in range(3):
        task = claim_one(tx)
        end(tx, task, "retry", error={"message": f"broke {n}", "trace": [n]}, run_at=clock.advance(1))

    errors = rows(
        tx, "select attempt, message, detail, recovered, worker_id from queues.task_error order by 1"
    )
    assert errors == [
        {
            "attempt": n + 1,
            "message": f"broke {n}",
            "detail": {"message": f"broke {n}", "trace": [n]},
            "recovered": False,
            "worker_id": "w1",
        }
        for n in range(3)
    ]


@pytest.mark.parametrize(
    ("attempt", "least", "most"), [(1, 2, 3), (2, 4, 6), (5, 32, 48), (9, 300, 450), (40, 300, 450)]
)
def test_without_a_time_a_retry_backs_off_by_itself(
    tx: Connection, clock: Clock, attempt: int, least: float, most: float
) -> None:
    enqueue(tx, max_attempts=100)
    for _ in range(attempt - 1):
        end(tx, claim_one(tx), "retry", run_at=clock.now)
    task = claim_one(tx)

    end(tx, task, "retry")

    assert clock.after(least) <= status(tx, task["task_id"])["run_at"] <= clock.after(most)


def test_a_back_off_is_spread(tx: Connection) -> None:
    drawn = {value(tx, "select queues.backoff(3)") for _ in range(20)}

    assert len(drawn) > 10


@pytest.mark.parametrize("ending", ["retry", "snooze"])
@pytest.mark.parametrize("junk", ["infinity", "-infinity", "1000-01-01T00:00:00Z", "9999-01-01T00:00:00Z"])
def test_a_time_that_cannot_be_meant_is_now(tx: Connection, clock: Clock, ending: str, junk: str) -> None:
    task = claim_new(tx)

    assert end(tx, task, ending, run_at=junk) == "accepted"
    assert status(tx, task["task_id"])["run_at"] == clock.now


def test_a_snooze_without_a_time_is_due_at_once(tx: Connection, clock: Clock) -> None:
    task = claim_new(tx)

    end(tx, task, "snooze")

    assert status(tx, task["task_id"])["run_at"] == clock.now
