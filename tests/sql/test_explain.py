"""queues.explain: why a task is not running now, by codes and in words."""

import pytest

from holdfast._words.explanation import explanation_words
from support import schedules
from support.clock import NOON, Clock
from support.database import Database
from support.engine import (
    Connection,
    act,
    answer,
    call,
    claim,
    claim_one,
    end,
    enqueue,
    enqueue_many,
    explain,
    explanation,
    heartbeat,
    held,
    rows,
    sweep,
)
from support.outbox import claim_events, settle, subscribe


@pytest.fixture(autouse=True)
def _utc(tx: Connection, clock: Clock) -> None:
    tx.execute("set local timezone = 'UTC'")
    assert clock.now == NOON


def _worker(tx: Connection, worker_id: str = "w1") -> None:
    call(tx, "queues.register_worker", {"worker_id": worker_id})


def test_an_unknown_id(tx: Connection) -> None:
    unknown = "00000000-0000-7000-8000-000000000000"
    told = (
        "the id is wrong, retention has removed it, it belongs to another namespace, "
        "or the transaction that enqueues it is still open."
    )

    assert explain(tx, unknown) == f"There is no task {unknown}: {told}"
    assert explain(tx, None) == f"There is no task: {told}"


def test_scheduled_for_later(tx: Connection, clock: Clock) -> None:
    assert explain(tx, enqueue(tx, run_at=clock.after(60))) == "It is scheduled for 2030-01-31 12:01:00+00."


def test_waiting_for_its_next_attempt(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    end(tx, claim_one(tx), "retry", error="broke", run_at=clock.after(60))

    told = "Attempt 1 of 3 failed; it is retried at 2030-01-31 12:01:00+00."
    assert explanation(tx, task_id) == (told, "broke")


def _suspended(tx: Connection, clock: Clock, *waits: dict[str, str]) -> str:
    task_id = enqueue(tx)
    until = str(clock.after(60))
    written = [{"until": until, **wait} for wait in waits]
    end(tx, claim_one(tx), "suspend", run_at=clock.after(60), waits=written)
    return explain(tx, task_id).replace(str(task_id), "ID")


def test_a_run_that_waits_for_a_signal(tx: Connection, clock: Clock) -> None:
    assert _suspended(tx, clock, {"name": "approval", "signal": "approval"}) == (
        "It waits for the signal approval until 2030-01-31 12:01:00+00."
    )
    [task_id] = [row["task_id"] for row in rows(tx, "select task_id from queues.wait")]
    [told] = rows(tx, "select * from queues.explain(%s)", [task_id])
    advice = explanation_words(told["code"], told["facts"]).advice
    assert advice == f"Send it with: holdfast runs signal {task_id} approval JSON"


def test_times_have_no_fractions_of_seconds(tx: Connection, clock: Clock) -> None:
    clock.advance(0.123456)
    assert _suspended(tx, clock, {"name": "cooling off"}) == (
        "It waits in cooling off until 2030-01-31 12:01:00+00."
    )


def test_a_run_that_sleeps(tx: Connection, clock: Clock) -> None:
    assert _suspended(tx, clock, {"name": "cooling off"}) == (
        "It waits in cooling off until 2030-01-31 12:01:00+00."
    )


def test_a_run_whose_step_failed_again(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    for passed, seconds in ((0, 60), (60, 120)):
        clock.advance(passed)
        until = clock.after(seconds)
        end(tx, claim_one(tx), "suspend", run_at=until, waits=[{"name": "charge", "until": str(until)}])
    assert explain(tx, task_id) == "It waits in charge until 2030-01-31 12:03:00+00."


def test_a_run_that_waits_for_much(tx: Connection, clock: Clock) -> None:
    told = _suspended(tx, clock, *({"name": f"nap {n}"} for n in range(5)))
    assert told.count("It waits in nap") == 3
    assert told.endswith("It waits for 2 more.")


def test_a_paused_queue(tx: Connection) -> None:
    task_id = enqueue(tx)
    answer(tx, "queues.pause", {"queue": "default", "reason": "the provider is down"})

    assert explain(tx, task_id) == (
        f"Queue default was paused at 2030-01-31 12:00:00+00 by {tx.info.user} because: the provider is"
        " down. Resume it to let its tasks run."
    )


def test_no_live_worker(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    told = (
        "It is due, but no live worker subscribes to queue default or to a prefix of type default.work."
        " Start one."
    )
    assert explain(tx, task_id) == told

    _worker(tx)
    clock.advance(60)
    assert explain(tx, task_id) == told


def test_the_next_of_its_queue(tx: Connection) -> None:
    task_id = enqueue(tx)
    _worker(tx)

    assert (
        explain(tx, task_id) == "It is due and waits for one of 1 live worker; it is the next of its queue."
    )


def test_a_worker_that_subscribes_by_prefix_counts(tx: Connection) -> None:
    task_id = enqueue(tx)
    call(tx, "queues.register_worker", {"worker_id": "w1", "type_prefixes": ["default."]})

    assert "1 live worker;" in explain(tx, task_id)


def test_waiting_behind_others(tx: Connection, clock: Clock) -> None:
    enqueue(tx, run_at=clock.after(60), priority=9)
    enqueue(tx, "other.work", priority=9)
    one = enqueue(tx, "default.urgent", priority=1)
    two = enqueue(tx, "default.older", run_at=clock.after(-60))
    three = enqueue(tx)
    _worker(tx)
    _worker(tx, "w2")

    assert [explain(tx, task_id).split("; ")[1] for task_id in (one, two, three)] == [
        "it is the next of its queue.",
        "1 of its queue comes before it.",
        "2 of its queue come before it.",
    ]
    assert explain(tx, three).startswith("It is due and waits for one of 2 live workers; ")


def test_counting_those_before_it_ends_at_ten_thousand(tx: Connection) -> None:
    enqueue_many(tx, [{"type": "default.work", "priority": 1}] * 10_001)
    task_id = enqueue(tx)
    _worker(tx)

    assert explain(tx, task_id).endswith("; 10000 or more of its queue come before it.")


def test_claimed(tx: Connection) -> None:
    task_id = enqueue(tx)
    claim(tx)

    assert explain(tx, task_id) == (
        "It is claimed and about to run, leased by worker w1 until 2030-01-31 12:00:30+00 (attempt 1 of 3)."
    )


def test_running(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    heartbeat(tx, held(claim_one(tx), started_at=clock.now))

    assert explain(tx, task_id) == (
        "It is running, leased by worker w1 until 2030-01-31 12:00:30+00 (attempt 1 of 3)."
    )


def test_claimed_by_a_worker_that_is_silent(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    _worker(tx)
    claim(tx)
    clock.advance(25)

    assert explain(tx, task_id) == (
        "It is claimed, leased by worker w1 until 2030-01-31 12:00:30+00 (attempt 1 of 3). That worker has "
        "been silent for 25 s: if it stays silent, other workers get the task at 2030-01-31 12:00:30+00."
    )


def test_a_lease_that_has_ended(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    claim(tx)
    clock.advance(31)

    assert explain(tx, task_id).endswith(
        "(attempt 1 of 3). The lease has ended, so the next sweep makes it ready again."
    )


def test_succeeded(tx: Connection) -> None:
    task_id = enqueue(tx)
    end(tx, claim_one(tx))

    assert explain(tx, task_id) == "It succeeded at 2030-01-31 12:00:00+00, on attempt 1 of 3."


def test_failed(tx: Connection) -> None:
    task_id = enqueue(tx)
    end(tx, claim_one(tx), "failed", error="no such invoice")

    assert explanation(tx, task_id) == (
        (
            "It failed at 2030-01-31 12:00:00+00, on attempt 1 of 3, and is not retried."
            " Retry it once the cause is fixed."
        ),
        "no such invoice",
    )


def test_failed_without_a_word(tx: Connection) -> None:
    task_id = enqueue(tx)
    end(tx, claim_one(tx), "failed")

    assert explanation(tx, task_id)[1] == "no message"


def test_a_dead_letter(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, max_attempts=1)
    claim(tx)
    clock.advance(31)
    sweep(tx)

    assert explanation(tx, task_id) == (
        "Its attempts were used up at 2030-01-31 12:00:31+00 (1 of 1). Retry it once the cause is fixed.",
        "worker w1 was silent past the end of its lease at 2030-01-31 12:00:30+00",
    )


@pytest.mark.parametrize(("reason", "told"), [("a mistake", " because: a mistake"), (None, "")])
def test_cancelled(tx: Connection, reason: str | None, told: str) -> None:
    task_id = enqueue(tx)
    act(tx, "cancel", task_id, reason=reason)

    assert explain(tx, task_id) == (
        f"It was cancelled at 2030-01-31 12:00:00+00{told}. Retry it to let it run after all."
    )


@pytest.mark.parametrize(("reason", "told"), [("spam", " because: spam"), (None, "")])
def test_deleted(tx: Connection, reason: str | None, told: str) -> None:
    task_id = enqueue(tx)
    act(tx, "delete_task", task_id, reason=reason)

    assert explain(tx, task_id) == (
        f"It was deleted at 2030-01-31 12:00:00+00 by {tx.info.user}{told}. Restore it to let it continue."
    )


def test_what_people_write_is_not_read_as_a_format(tx: Connection) -> None:
    task_id = enqueue(tx)
    act(tx, "cancel", task_id, reason="100%s %I $1")

    assert "because: 100%s %I $1." in explain(tx, task_id)


def test_held_by_a_worker_that_has_fallen_silent(tx: Connection, clock: Clock) -> None:
    _worker(tx)
    task_id = enqueue(tx)
    claim_one(tx, lease="1 hour")
    clock.advance(61)

    told = "That worker has been silent for 1 min 1 s, so the leader will recover it."
    assert explain(tx, task_id).endswith(told)


def test_a_schedule_leaves_its_times_out_until_it_has_ended(tx: Connection, clock: Clock) -> None:
    _worker(tx)
    schedules.add(tx, overlap="skip", queue="default")
    schedules.plan(tx, NOON)
    schedules.fire(tx, NOON)
    (task,) = schedules.tasks(tx)
    clock.set(schedules.at(13))
    schedules.fire(tx, clock.now)

    told = " Until it has ended, schedule nightly skips its times: 1 so far."
    assert explain(tx, task["task_id"]).endswith(told)
    running = claim_one(tx)
    assert explain(tx, task["task_id"]).endswith(told)
    end(tx, running)
    assert told not in explain(tx, task["task_id"])


def test_an_ended_task_whose_events_are_not_delivered(tx: Connection, clock: Clock) -> None:
    subscription_id = subscribe(tx, "crm", "task.*")
    task_id = enqueue(tx)
    end(tx, claim_one(tx))
    waits = " Its event task.succeeded waits for subscription crm since 2030-01-31 12:00:00+00: "

    assert explain(tx, task_id).endswith(f"{waits}no dispatcher is live.")
    call(tx, "queues.dispatcher_heartbeat", {"dispatcher_id": "d1"})
    assert explain(tx, task_id).endswith(f"{waits}others come before it.")
    claimed = claim_events(tx, subscription_id)
    assert explain(tx, task_id).endswith(f"{waits}dispatcher d1 is sending it.")
    settle(tx, subscription_id, claimed, "failed", error="503 from crm")
    told, error = explanation(tx, task_id)
    assert told.endswith(f"{waits}delivery failed.")
    assert error == "503 from crm"
    call(tx, "queues.pause_subscription", {"name": "crm"})
    assert explain(tx, task_id).endswith(f"{waits}it is paused.")


def test_locked_by_a_transaction_that_stays_open(db: Database) -> None:
    admin, holder = db.connect(), db.connect("holdfast_operator", autocommit=False)
    clock = Clock(admin)
    task_id = enqueue(admin)
    call(holder, "queues.reschedule", {"task_id": task_id, "run_at": clock.now})
    pid = holder.info.backend_pid
    for _ in range(10):
        answer(admin, "queues.take_sample", {})
        clock.advance(60)
    _worker(admin)

    told = explain(admin, task_id)
    assert f"session {pid} of login holdfast_operator_login has changed or locked it" in told
    assert "open for 10 min" in told
    assert claim(admin) == []
    holder.rollback()
    assert "changed or locked" not in explain(admin, task_id)


def test_slow_because_dead_rows_cannot_be_cleaned_up(db: Database) -> None:
    admin, holder = db.connect(), db.connect(autocommit=False)
    admin.execute("alter table queues.ready set (autovacuum_enabled = off)")
    clock = Clock(admin)
    holder.execute("select pg_current_xact_id()")
    answer(admin, "queues.take_sample", {})
    task_id = enqueue(admin)
    admin.execute(
        """insert into queues.ready
           select gen_random_uuid(), run_at, -1, 0 from queues.ready, generate_series(1, 100000)"""
    )
    admin.execute("delete from queues.ready where lane_id = -1")
    admin.execute("select pg_stat_force_next_flush()")
    clock.advance(400)
    _worker(admin)

    told = f"Claims may be slow: session {holder.info.backend_pid} of postgres has held a snapshot for 6 min"
    assert told in explain(admin, task_id)
    holder.rollback()
    assert "Claims may be slow" not in explain(admin, task_id)
