"""The view queues.task_event: the life of a task in order, whatever course it took."""

from typing import Any

import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    Row,
    act,
    claim_one,
    end,
    enqueue,
    events,
    heartbeat,
    held,
    refused,
    release,
    rows,
    sweep,
)


class Life:
    """One task, to which one thing after another happens, a second apart."""

    def __init__(self, tx: Connection, clock: Clock, **arguments: Any) -> None:
        self.tx, self.clock = tx, clock
        self.task_id = enqueue(tx, **arguments)
        self.task: Row = {}

    def claim(self) -> None:
        self.clock.advance(1)
        self.task = claim_one(self.tx)

    def start(self) -> None:
        started_at = self.clock.advance(1)
        heartbeat(self.tx, held(self.task, started_at=started_at))

    def end(self, status: str, **more: Any) -> None:
        now = self.clock.advance(1)
        end(self.tx, self.task, status, run_at=now, **more)

    def run(self, status: str, **more: Any) -> None:
        self.claim()
        self.start()
        self.end(status, **more)

    def release(self) -> None:
        self.clock.advance(1)
        release(self.tx, held(self.task))

    def expire(self) -> None:
        self.clock.advance(60)
        sweep(self.tx)

    def act(self, function: str, **more: Any) -> None:
        self.clock.advance(1)
        act(self.tx, function, self.task_id, **more)

    def story(self) -> str:
        told = events(self.tx, self.task_id)
        times = [event["occurred_at"] for event in told]
        assert times == sorted(times)
        return " ".join(event["event_type"] for event in told)


@pytest.fixture
def life(tx: Connection, clock: Clock) -> Life:
    return Life(tx, clock, max_attempts=3)


def test_its_columns_are_those_of_the_contract(life: Life) -> None:
    (created,) = events(life.tx, life.task_id)

    assert list(created) == [
        *("task_id", "event_type", "occurred_at", "attempt", "worker_id", "actor", "reason", "data"),
    ]
    assert (created["event_type"], created["actor"]) == ("created", life.tx.info.user)


def test_a_task_that_runs_now(life: Life) -> None:
    life.claim()
    assert life.story() == "created claimed"
    life.start()
    assert life.story() == "created claimed started"


def test_a_success(life: Life) -> None:
    life.run("succeeded", result=7)

    assert life.story() == "created claimed started succeeded"
    assert {event["worker_id"] for event in events(life.tx, life.task_id)} == {None, "w1"}


def test_a_success_of_which_no_heartbeat_told(life: Life) -> None:
    life.claim()
    life.end("succeeded")

    assert life.story() == "created claimed started succeeded"


def test_a_failure(life: Life) -> None:
    life.run("failed", error="no such invoice")

    assert life.story() == "created claimed started failed"
    assert events(life.tx, life.task_id)[-1]["reason"] == "no such invoice"


def test_a_retry_that_succeeds(life: Life) -> None:
    life.run("retry", error="slow")
    life.run("succeeded")

    assert life.story() == "created claimed started failed retried claimed started succeeded"
    attempts = [event["attempt"] for event in events(life.tx, life.task_id)]
    assert attempts == [None, 1, 1, 1, 1, 2, 2, 2]


def test_attempts_that_are_used_up(life: Life) -> None:
    for _ in range(3):
        life.run("retry", error="slow")

    again = "claimed started failed retried"
    assert life.story() == f"created {again} {again} claimed started failed dead_letter"


def test_a_snooze(life: Life) -> None:
    life.run("snooze")
    life.run("succeeded")

    assert life.story() == "created claimed started snoozed claimed started succeeded"


def test_a_release(life: Life) -> None:
    life.claim()
    life.release()
    life.claim()
    life.start()
    life.release()

    assert life.story() == "created claimed released claimed started released"


def test_a_worker_that_falls_silent(life: Life) -> None:
    life.claim()
    life.start()
    life.expire()
    life.run("succeeded")

    assert life.story() == "created claimed started recovered claimed started succeeded"
    recovered = events(life.tx, life.task_id)[3]
    assert recovered["data"] == {"kind": "lease_expired"}


def test_workers_that_all_fall_silent(life: Life) -> None:
    for _ in range(3):
        life.claim()
        life.expire()

    again = "claimed recovered"
    assert life.story() == f"created {again} {again} {again} dead_letter"
    assert events(life.tx, life.task_id)[-1]["reason"] == "lease_expired"


def test_a_cancel_before_it_ran(life: Life) -> None:
    life.act("cancel", reason="a mistake")

    assert life.story() == "created cancelled"
    assert events(life.tx, life.task_id)[-1]["reason"] == "a mistake"


def test_a_cancel_while_it_ran(life: Life) -> None:
    life.claim()
    life.start()
    life.act("cancel")
    life.end("succeeded")

    assert life.story() == "created claimed started cancelled"


def test_a_cancel_by_its_own_handler(life: Life) -> None:
    life.run("cancelled")

    assert life.story() == "created claimed started cancelled"


def test_a_redrive_of_what_failed(life: Life) -> None:
    life.run("failed", error="broke")
    life.act("retry", reason="mended")
    life.run("succeeded")

    assert life.story() == "created claimed started failed retried claimed started succeeded"


def test_a_redrive_of_a_dead_letter(life: Life) -> None:
    for _ in range(3):
        life.run("retry")
    life.act("retry")
    life.claim()

    again = "claimed started failed retried"
    assert life.story() == f"created {again} {again} claimed started failed dead_letter retried claimed"


def test_a_redrive_of_what_silent_workers_left(life: Life) -> None:
    for _ in range(3):
        life.claim()
        life.expire()
    life.act("retry")

    again = "claimed recovered"
    assert life.story() == f"created {again} {again} {again} dead_letter retried"


def test_a_redrive_of_what_was_cancelled_while_it_ran(life: Life) -> None:
    life.claim()
    life.start()
    life.act("cancel", reason="a mistake")
    life.act("retry", reason="no mistake")

    assert life.story() == "created claimed started cancelled retried"
    assert [event["reason"] for event in events(life.tx, life.task_id)[-2:]] == ["a mistake", "no mistake"]


def test_a_redrive_of_what_was_cancelled_before_it_ran(life: Life) -> None:
    life.act("cancel")
    life.act("retry")
    life.run("succeeded")

    assert life.story() == "created cancelled retried claimed started succeeded"


def test_a_redrive_of_what_its_own_handler_cancelled(life: Life) -> None:
    life.run("cancelled")
    life.act("retry")
    life.run("cancelled")

    assert life.story() == "created claimed started cancelled retried claimed started cancelled"


def test_a_second_redrive(life: Life) -> None:
    life.run("failed")
    life.act("retry")
    life.run("failed")
    life.act("retry")

    again = "claimed started failed retried"
    assert life.story() == f"created {again} {again}"


def test_a_delete_and_a_restore(life: Life) -> None:
    life.act("delete_task", reason="spam")
    life.act("restore_task")
    life.run("succeeded")

    assert life.story() == "created deleted restored claimed started succeeded"


def test_a_reschedule(life: Life) -> None:
    life.act("reschedule", run_at=life.clock.after(60))

    assert life.story() == "created rescheduled"


def test_what_happens_within_one_instant_is_told_in_its_order(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, max_attempts=1)
    task = claim_one(tx)
    heartbeat(tx, held(task, started_at=clock.now))
    end(tx, task, "retry")

    told = [event["event_type"] for event in events(tx, task_id)]
    assert told == ["created", "claimed", "started", "failed", "dead_letter"]


def test_only_what_people_did_has_an_actor(life: Life) -> None:
    life.run("failed")
    life.act("retry")

    actors = {event["event_type"]: event["actor"] for event in events(life.tx, life.task_id)}
    assert actors == {
        "created": life.tx.info.user,
        "claimed": None,
        "started": None,
        "failed": None,
        "retried": life.tx.info.user,
    }


def page(life: Life, max_events: int, before: Any = None) -> list[Row]:
    wanted = "select * from queues.task_events_of(array[%s::uuid], %s, %s)"
    return rows(life.tx, wanted, [life.task_id, max_events, before])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
def test_pages_of_any_size_have_every_event_once(life: Life, size: int) -> None:
    life.run("retry", error="slow")
    life.run("snooze")
    life.act("cancel")
    life.act("retry")
    life.act("delete_task")
    whole = events(life.tx, life.task_id)
    assert len(whole) > 10

    pages: list[Row] = []
    while found := page(life, size, pages[0]["occurred_at"] if pages else None):
        pages[:0] = found

    assert pages == whole


def test_a_page_of_events_is_bounded(life: Life) -> None:
    with refused(life.tx, "QF400", "max_events 1001 is not between 1 and 1000"):
        page(life, 1001)
