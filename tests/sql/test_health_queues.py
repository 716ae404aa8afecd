"""What queues.health says of queues: tasks that wait too long, and what they wait for."""

from typing import Any

import pytest

from support.clock import Clock
from support.engine import Connection, act, call, claim, claim_one, end, enqueue, enqueue_many
from support.health import checks, health, level, line, register


@pytest.mark.parametrize(("waited", "expected"), [(59, "green"), (60, "amber"), (600, "red")])
def test_a_task_that_waits_too_long(tx: Connection, clock: Clock, waited: float, expected: str) -> None:
    enqueue(tx, "slow.work")
    enqueue(tx, "slow.other", priority=5, run_at=clock.after(30))
    enqueue(tx, "later.work", run_at=clock.after(86400))
    clock.advance(waited)
    register(tx, queues=["slow"])

    found = line(tx, "oldest_due", "slow")
    assert (found["level"], found["value"]) == (expected, waited)
    assert not [row for row in health(tx) if row["subject"] == "later"]
    assert "unserved" not in checks(tx)


@pytest.mark.parametrize("others", [0, 3])
def test_a_task_that_waits_for_its_key_is_not_told_to_want_more_workers(
    tx: Connection, clock: Clock, others: int
) -> None:
    register(tx, queues=["shop"], timeout="1 day")
    enqueue_many(tx, [{"type": "shop.ship", "concurrency_key": "order-7"}] * 2)
    claim(tx, max_tasks=2, queues=["shop"], lease="1 day")
    clock.advance(60)
    enqueue_many(tx, [{"type": "shop.pack"}] * others)
    clock.advance(60)

    advice = line(tx, "oldest_due", "shop")["advice"]
    held = "the oldest due task" if others else "all due tasks"
    assert advice.startswith(f"Limits hold back {held}: ")
    assert "order-7" in advice


@pytest.mark.parametrize(
    ("subscription", "told"),
    [
        ({"queues": ["other"]}, True),
        ({"queues": ["mail"]}, False),
        ({"type_prefixes": ["mail."]}, False),
        ({"type_prefixes": ["mail.a"]}, True),
    ],
)
def test_a_queue_that_nobody_serves(
    tx: Connection, clock: Clock, subscription: dict[str, Any], told: bool
) -> None:
    enqueue(tx, "mail.send")
    clock.advance(60)
    register(tx, **subscription)

    assert ("unserved" in checks(tx)) == told
    if told:
        found = line(tx, "unserved", "mail")
        assert (found["level"], "--queues mail" in found["advice"]) == ("red", True)


def test_a_paused_queue(tx: Connection, clock: Clock) -> None:
    enqueue(tx, "mail.send")
    call(tx, "queues.pause", {"queue": "mail", "reason": "the provider is down"})
    clock.advance(700)

    found = line(tx, "paused_queue", "mail")
    assert (found["level"], found["value"]) == ("amber", 700)
    assert "the provider is down" in found["message"]
    assert not {"oldest_due", "unserved"} & checks(tx)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"rate": 1, "per": "1 day"}, "type mail.send has used up its rate"),
        ({"max_running": 1}, "at most 1 may run at once"),
    ],
)
def test_tasks_that_only_a_limit_holds_back_are_amber_and_the_finding_names_the_limit(
    tx: Connection, clock: Clock, limit: dict[str, Any], said: str
) -> None:
    register(tx, queues=["mail"], timeout="1 day")
    call(tx, "queues.set_limit", {"subject": "type", "name": "mail.send", **limit})
    enqueue_many(tx, [{"type": "mail.send"}] * 3)
    claim(tx, max_tasks=3, queues=["mail"], lease="1 day")
    clock.advance(7200)

    found = line(tx, "oldest_due", "mail")
    assert found["level"] == "amber"
    assert "mail.send" in found["message"]
    assert said in found["message"]
    enqueue(tx, "mail.other")
    clock.advance(7200)
    assert level(tx, "oldest_due", "mail") == "red"  # nothing holds that one back


def test_a_queue_that_was_just_resumed_has_no_delay(tx: Connection, clock: Clock) -> None:
    register(tx, queues=["mail"], timeout="1 day")
    call(tx, "queues.pause", {"queue": "mail", "reason": "the provider is down"})
    enqueue(tx, "mail.send")
    clock.advance(7200)
    call(tx, "queues.resume", {"queue": "mail"})
    end(tx, claim_one(tx, queues=["mail"]))

    assert level(tx, "delay_p99", "mail") == "green"
    assert {row["level"] for row in health(tx) if row["subject"] == "mail"} == {"green"}


def test_a_delay_under_a_limit_is_not_red(tx: Connection, clock: Clock) -> None:
    call(tx, "queues.set_limit", {"subject": "queue", "name": "mail", "rate": 1, "per": "1 hour"})
    enqueue(tx, "mail.send")
    clock.advance(7200)
    end(tx, claim_one(tx, queues=["mail"]))

    found = line(tx, "delay_p99", "mail")
    assert (found["level"], "holdfast limits" in found["advice"]) == ("amber", True)


def test_how_long_tasks_waited(tx: Connection, clock: Clock) -> None:
    enqueue_many(tx, [{"type": "mail.send"}] * 99)
    clock.advance(2)
    for task in claim(tx, max_tasks=99, queues=["mail"]):
        end(tx, task)
    enqueue(tx, "mail.send")
    clock.advance(100)
    end(tx, claim_one(tx, queues=["mail"]))

    assert line(tx, "delay_p50", "mail")["value"] == 2
    found = line(tx, "delay_p99", "mail")
    assert (found["level"], 2 < found["value"] < 100) == ("green", True)
    assert "100 tasks" in found["message"]
    clock.advance(300)
    assert "delay_p50" not in checks(tx)


def test_a_task_that_was_put_off_did_not_wait(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, "mail.send")
    clock.advance(5)
    act(tx, "reschedule", task_id, run_at=clock.after(3600))
    clock.advance(3600)
    end(tx, claim_one(tx, queues=["mail"]))

    assert "delay_p99" not in checks(tx)
