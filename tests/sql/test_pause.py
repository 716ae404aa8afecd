"""queues.pause and queues.resume: stop claims from a queue, and let them go on."""

from typing import Any

import pytest

from support.clock import Clock
from support.engine import Connection, answer, claim, claim_one, end, enqueue, refused, rows


def _pause(tx: Connection, queue: Any = "default", **arguments: Any) -> bool:
    return bool(answer(tx, "queues.pause", {"queue": queue, **arguments}))


def _resume(tx: Connection, queue: Any = "default", **arguments: Any) -> bool:
    return bool(answer(tx, "queues.resume", {"queue": queue, **arguments}))


def test_nothing_is_claimed_from_a_paused_queue(tx: Connection) -> None:
    enqueue(tx)
    other = enqueue(tx, "other.work")

    assert _pause(tx)
    assert [task["task_id"] for task in claim(tx, queues=["default", "other"], max_tasks=9)] == [other]
    assert _resume(tx)
    assert len(claim(tx)) == 1


def test_a_prefix_does_not_get_around_a_pause(tx: Connection) -> None:
    enqueue(tx, "billing.x", queue="elsewhere")
    _pause(tx, "elsewhere")

    assert claim(tx, type_prefixes=["billing."]) == []


def test_what_runs_goes_on(tx: Connection) -> None:
    enqueue(tx)
    task = claim_one(tx)
    _pause(tx)

    assert end(tx, task) == "accepted"


def test_a_queue_may_be_paused_before_it_has_tasks(tx: Connection) -> None:
    assert _pause(tx, "not-there-yet")
    enqueue(tx, "not-there-yet.x")

    assert claim(tx, queues=["not-there-yet"]) == []


def test_repeating_it_says_that_nothing_changed(tx: Connection) -> None:
    assert [_pause(tx, reason="first"), _pause(tx, reason="second")] == [True, False]
    (queue,) = rows(tx, "select pause_reason from queues.queue_status where queue = 'default'")
    assert queue["pause_reason"] == "first"
    assert [_resume(tx), _resume(tx)] == [True, False]


def test_actors_and_reasons_are_recorded(tx: Connection, clock: Clock) -> None:
    _pause(tx, reason="the provider is down")
    _resume(tx, reason="it is up")

    acts = rows(tx, "select queue, act, actor, reason, occurred_at from queues.queue_act order by act_id")
    assert [list(told.values()) for told in acts] == [
        ["default", "paused", tx.info.user, "the provider is down", clock.now],
        ["default", "resumed", tx.info.user, "it is up", clock.now],
    ]


@pytest.mark.parametrize("queue", [None, "", " ", "a b", "x" * 201])
def test_a_name_that_no_queue_can_have_is_refused(tx: Connection, queue: Any) -> None:
    with refused(tx, "QF400", "queue"):
        _pause(tx, queue)
    with refused(tx, "QF400", "queue"):
        _resume(tx, queue)


def test_queue_status_counts_what_waits_and_runs(tx: Connection, clock: Clock) -> None:
    for due_in in (-5, 0, 60):
        enqueue(tx, "q.a", run_at=clock.after(due_in))
    enqueue(tx, "q.b", priority=1)
    claim(tx, queues=["q"])
    tx.execute("select queues.register_worker('w1', queues => '{q}')")
    _pause(tx, "q", reason="because")

    (queue,) = rows(tx, "select * from queues.queue_status where queue = 'q'")
    assert queue == {
        "queue": "q",
        "due": 2,
        "scheduled": 1,
        "running": 1,
        "oldest_due": clock.after(-5),
        "paused_at": clock.now,
        "paused_by": tx.info.user,
        "pause_reason": "because",
        "live_workers": 1,
    }
