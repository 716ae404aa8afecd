"""What queues.health says of failing types, retention and the clock, in which order, and to which roles."""

import pytest

from support import schedules
from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    answer,
    call,
    change_setting,
    claim,
    claim_one,
    end,
    enqueue,
    enqueue_many,
    finish,
)
from support.health import checks, health, level, line, register
from support.outbox import emit, subscribe

SERVER = {"dead_rows", "notification_queue", "transaction_ids", "size", "growth"}


def test_an_idle_installation_is_green(tx: Connection, clock: Clock) -> None:
    register(tx)
    answer(tx, "queues.lead", {"worker_id": "w1"})

    found = {row["check_name"]: row["level"] for row in health(tx)}
    assert set(found.values()) == {"green"}
    assert found.keys() >= SERVER | {"workers", "expired_leases"}


def test_the_worst_comes_first(tx: Connection, clock: Clock) -> None:
    enqueue(tx, "slow.work")
    answer(tx, "queues.pause", {"queue": "other"})
    clock.advance(601)

    levels = [row["level"] for row in health(tx)]
    assert (levels[0], levels[-1]) == ("red", "green")
    assert levels == sorted(levels, key=["red", "amber", "green"].index)


def test_a_run_that_does_not_take_its_signals(tx: Connection) -> None:
    change_setting(tx, "max_signals", 10)
    quiet, busy = enqueue(tx, "work.quiet"), enqueue(tx, "work.busy")
    for run, count in ((quiet, 8), (busy, 9)):
        for n in range(count):
            answer(tx, "queues.signal", {"task_id": run, "name": "word", "payload": n})

    found = line(tx, "full_mailbox", str(busy))

    assert (found["level"], found["value"]) == ("amber", 0.9)
    assert "work.busy has 9 signals" in found["message"]
    assert [row["subject"] for row in health(tx) if row["check_name"] == "full_mailbox"] == [str(busy)]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        *[((1, 0, 0), "green"), ((5, 0, 0), "amber"), ((5, 0, 4), "amber"), ((5, 0, 5), "green")],
        *[((0, 1, 0), "amber"), ((0, 1, 19), "amber"), ((0, 1, 20), "green"), ((0, 2, 98), "green")],
        *[((0, 4, 0), "amber"), ((0, 5, 5), "red"), ((0, 5, 6), "amber"), ((0, 20, 0), "red")],
    ],
)
def test_a_type_that_fails(tx: Connection, clock: Clock, counts: tuple[int, int, int], expected: str) -> None:
    retried, failed, succeeded = counts
    enqueue_many(tx, [{"type": "mail.send"}] * (retried + failed + succeeded))
    endings = ["retry"] * retried + ["failed"] * failed + ["succeeded"] * succeeded
    for task, status in zip(claim(tx, max_tasks=100, queues=["mail"]), endings, strict=True):
        error = None if status == "succeeded" else {"kind": "Boom", "message": "no route"}
        end(tx, task, status, error=error)

    found = line(tx, "failing_type", "mail.send")
    share = failed / (failed + succeeded) if failed + succeeded else 0
    assert (found["level"], found["value"]) == (expected, share)
    assert found["error"] == "no route"
    clock.advance(601)
    assert "failing_type" not in checks(tx)


@pytest.mark.parametrize(("reported", "expected"), [(False, "amber"), (True, "green")])
def test_a_few_failures_among_many_successes_are_not_red_however_many_other_tasks_ended_since(
    tx: Connection, clock: Clock, reported: bool, expected: str
) -> None:
    enqueue_many(tx, [{"type": "shop.pay"}] * 20)
    for task in claim(tx, max_tasks=20, queues=["shop"]):
        end(tx, task, "failed", error={"kind": "Boom", "message": "card declined"})
    enqueue_many(tx, [{"type": "mail.send"}] * 2001)
    held = claim(tx, max_tasks=2001, queues=["mail"])
    finish(tx, [{"task_id": one["task_id"], "token": one["token"], "status": "succeeded"} for one in held])
    if reported:
        tx.execute(
            """insert into queues.activity (at, queue, type, succeeded, failed)
               values (date_trunc('minute', queues.clock()), 'shop', 'shop.pay', 980, 20)"""
        )

    found = line(tx, "failing_type", "shop.pay")
    assert (found["level"], "20 of the last 1000 tasks" in found["message"]) == (expected, reported)


def test_every_line_that_is_not_green_says_what_to_do(tx: Connection, clock: Clock) -> None:
    enqueue(tx, "mail.send")
    enqueue(tx, "work.x")
    end(tx, claim_one(tx, queues=["work"]), "failed")
    call(tx, "queues.pause", {"queue": "other"})
    register(tx, "w9")
    schedules.add(tx)
    subscribe(tx, "crm")
    emit(tx)
    clock.advance(599)

    troubled = [row for row in health(tx) if row["level"] != "green"]
    assert len(troubled) >= 6
    assert [row for row in troubled if not row["advice"]] == []
    assert [row for row in health(tx) if not row["message"]] == []


def test_who_may_ask(db: Database) -> None:
    for role in ("holdfast_reader", "holdfast_operator"):
        assert health(db.connect(role))


@pytest.mark.parametrize(
    ("days", "level_then"), [(7, None), (7 + 1 / 48, None), (7.1, "amber"), (8.1, "red")]
)
def test_retention_that_is_behind_is_told(
    tx: Connection, clock: Clock, days: float, level_then: str | None
) -> None:
    enqueue(tx)
    end(tx, claim_one(tx))
    clock.advance(days * 86400)

    found = [row for row in health(tx) if row["check_name"] == "retention"]

    assert [row["level"] for row in found] == ([] if level_then is None else [level_then])
    if found:
        assert found[0]["message"].startswith("1 succeeded task should have been deleted more than")


def test_retention_is_not_behind_when_its_policy_has_just_changed(tx: Connection, clock: Clock) -> None:
    enqueue(tx)
    end(tx, claim_one(tx))
    clock.advance(6 * 86400)

    call(tx, "queues.set_retention", {"status": "succeeded", "keep": "1 day"})

    assert "retention" not in checks(tx)


def test_a_clock_that_was_set_back_is_found(tx: Connection, clock: Clock) -> None:
    register(tx)
    assert "clock" not in checks(tx)
    clock.advance(-3600)
    found = line(tx, "clock")
    assert (found["level"], found["value"]) == ("amber", 3600)


def _fail_tries(tx: Connection, clock: Clock, type_: str, tries: int, retry_after: float) -> str:
    """A run whose step has failed so many times, and which is suspended until its next try."""
    task_id = enqueue(tx, type_)
    task = claim_one(tx, queues=["work"])
    again = clock.after(retry_after)
    failed = [
        {"name": "call_bank", "try": n + 1, "tries": 9, "retry_at": again, "error": {"message": "no bank"}}
        for n in range(tries)
    ]
    end(
        tx,
        task,
        "suspend",
        waits=[{"name": "call_bank", "until": again}],
        run_at=again,
        steps=[],
        tries=failed,
    )
    return str(task_id)


def test_a_step_that_fails_for_the_third_time_is_never_green(tx: Connection, clock: Clock) -> None:
    twice = _fail_tries(tx, clock, "work.often", 2, 1)
    assert "failing_step" not in checks(tx)

    thrice = _fail_tries(tx, clock, "work.often", 3, 1)
    other = _fail_tries(tx, clock, "work.other", 3, 1)
    found = line(tx, "failing_step", "work.often")
    assert (found["level"], found["value"]) == ("amber", 1)
    assert (
        "a step of runs of type work.often fails; longest, call_bank has failed 3 of 9 tries"
        in found["message"]
    )
    assert f"holdfast why {thrice}" in found["advice"]
    assert (found["error"], twice in found["advice"]) == ("no bank", False)

    answer(tx, "queues.cancel", {"task_id": other})
    assert [row["subject"] for row in health(tx) if row["check_name"] == "failing_step"] == ["work.often"]


@pytest.mark.parametrize(("tries", "retry_after", "passed"), [(1, 3600, 0), (2, 60, 601)])
def test_a_step_that_fails_for_ten_minutes_is_never_green(
    tx: Connection, clock: Clock, tries: int, retry_after: float, passed: int
) -> None:
    _fail_tries(tx, clock, "work.slow", tries, retry_after)
    clock.advance(passed)

    assert level(tx, "failing_step", "work.slow") == "amber"


def test_a_failing_step_is_found_behind_many_other_errors(tx: Connection, clock: Clock) -> None:
    _fail_tries(tx, clock, "work.slow", 3, 3600)
    tx.execute(
        "insert into queues.error (task_id, occurred_at, attempt, recovered, kind, message)"
        " select queues.new_task_id(), queues.clock(), 1, false, 'error', 'boom'"
        " from generate_series(1, 2000)"
    )

    assert level(tx, "failing_step", "work.slow") == "amber"


def test_a_step_that_has_ended_no_longer_fails(tx: Connection, clock: Clock) -> None:
    _fail_tries(tx, clock, "work.often", 3, 1)
    assert level(tx, "failing_step", "work.often") == "amber"
    clock.advance(2)
    ended = [{"name": "call_bank", "number": 1, "kind": "step", "result": 1}]
    end(tx, claim_one(tx, queues=["work"]), steps=ended)

    assert "failing_step" not in checks(tx)
