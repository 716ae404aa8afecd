"""queues.next_due: how long a worker may rest."""

from datetime import timedelta
from typing import Any

import pytest

from support.clock import Clock
from support.engine import Connection, act, answer, call, claim, enqueue


def _next_due(tx: Connection, **arguments: Any) -> float | None:
    (row,) = call(tx, "queues.next_due", arguments)
    rest: timedelta | None = row["due"]
    return None if rest is None else rest.total_seconds()


def test_it_is_the_time_until_the_first_task_is_due(tx: Connection, clock: Clock) -> None:
    for seconds in (90, 60, 120):
        enqueue(tx, run_at=clock.after(seconds), priority=seconds // 2)
    assert _next_due(tx) == 60

    clock.advance(70)
    assert _next_due(tx) == -10


def test_nothing_waits(tx: Connection) -> None:
    enqueue(tx)
    claim(tx)

    assert _next_due(tx) is None


@pytest.mark.parametrize(
    ("subscription", "seconds"),
    [
        ({}, None),
        ({"queues": ["media"]}, 20),
        ({"type_prefixes": ["billing."]}, 10),
        ({"type_prefixes": ["billing_"]}, None),
        ({"queues": ["media"], "type_prefixes": ["billing."]}, 10),
    ],
)
def test_only_what_the_worker_subscribes_to_counts(
    tx: Connection, clock: Clock, subscription: dict[str, Any], seconds: float | None
) -> None:
    enqueue(tx, "billing.x", run_at=clock.after(10))
    enqueue(tx, "media.x", run_at=clock.after(20))

    assert _next_due(tx, **subscription) == seconds


def test_what_is_paused_or_deleted_does_not_count(tx: Connection, clock: Clock) -> None:
    act(tx, "delete_task", enqueue(tx, "a.b", run_at=clock.after(5)))
    enqueue(tx, "paused.x", run_at=clock.after(10))
    answer(tx, "queues.pause", {"queue": "paused"})

    assert _next_due(tx, queues=["a", "paused"]) is None


def limit(tx: Connection, **limits: Any) -> None:
    call(tx, "queues.set_limit", {"subject": "queue", "name": "default", **limits})


def test_what_waits_for_a_slot_is_not_waited_for(tx: Connection, clock: Clock) -> None:
    limit(tx, max_running=1)
    for _ in range(2):
        enqueue(tx)
    assert call(tx, "queues.next_due", {}) == [{"due": timedelta(0), "held": False}]

    claim(tx, max_tasks=5)
    assert call(tx, "queues.next_due", {}) == [{"due": None, "held": True}]

    enqueue(tx, run_at=clock.after(60), priority=-1)
    assert call(tx, "queues.next_due", {}) == [{"due": timedelta(seconds=60), "held": True}]


def test_what_waits_for_a_key_is_not_waited_for(tx: Connection, clock: Clock) -> None:
    for _ in range(2):
        enqueue(tx, concurrency_key="customer")
    claim(tx, max_tasks=5)
    assert call(tx, "queues.next_due", {}) == [{"due": None, "held": True}]

    enqueue(tx, concurrency_key="neighbour")
    assert call(tx, "queues.next_due", {}) == [{"due": timedelta(0), "held": True}]


def test_a_rate_says_when_it_lets_the_next_one_start(tx: Connection, clock: Clock) -> None:
    limit(tx, rate=4, per=timedelta(minutes=1))
    for _ in range(6):
        enqueue(tx)
    assert len(claim(tx, max_tasks=6)) == 4
    clock.advance(5)

    rest = _next_due(tx)

    assert rest is not None
    assert 10 <= rest < 10.01
    clock.advance(rest)
    assert len(claim(tx, max_tasks=6)) == 1
