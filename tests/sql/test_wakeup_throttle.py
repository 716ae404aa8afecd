"""The wake-up throttle: while a worker holds it, enqueueing wakes no worker; its holder does."""

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, act, answer, claim_one, enqueue, enqueue_many
from support.fleet import Fleet


@pytest.fixture
def fleet(db: Database) -> Fleet:
    """The clock stands still: a task is new for a quarter of a second only, and a test may take longer."""
    fleet = Fleet(db)
    Clock(fleet.admin)
    fleet.register()
    return fleet


@pytest.fixture
def holder(db: Database) -> Connection:
    return db.connect("holdfast_worker")


def hold(session: Connection, *queues: str | None, worker_id: str = "holder") -> list[str]:
    held: list[str] = answer(session, "queues.hold_wakeups", {"worker_id": worker_id, "queues": list(queues)})
    return sorted(held)


def notify_idle(session: Connection, *queues: str) -> bool:
    found: bool = answer(session, "queues.notify_idle", {"queues": list(queues)})
    return found


def test_an_enqueue_wakes_no_worker_while_wakeups_are_held(fleet: Fleet, holder: Connection) -> None:
    assert hold(holder, "default") == ["default"]

    enqueue(fleet.admin)
    enqueue_many(fleet.admin, [{"type": "default.work"}] * 3)

    assert fleet.heard() == []


def test_wakeups_are_held_per_queue(fleet: Fleet, holder: Connection) -> None:
    fleet.register("w2", queues=["other"])
    hold(holder, "default")

    enqueue(fleet.admin, "other.work")
    enqueue_many(fleet.admin, [{"type": "other.work"}, {"type": "default.work"}])

    assert fleet.heard() == ["other", "other"]


def test_the_wakeups_of_a_queue_are_held_by_one_worker(db: Database, holder: Connection) -> None:
    other = db.connect("holdfast_worker")
    hold(holder, "a", "b")

    assert hold(other, "b", "c", "c", None, worker_id="other") == ["c"]
    assert hold(holder, "a", "b") == ["a", "b"]


def test_wakeups_can_be_held_again_after_they_are_released(fleet: Fleet, holder: Connection) -> None:
    held = hold(holder, "default", "other")
    answer(holder, "queues.release_wakeups", {"worker_id": "other", "queues": held})
    assert hold(fleet.admin, "default", worker_id="other") == []
    answer(holder, "queues.release_wakeups", {"worker_id": "holder", "queues": held})

    enqueue(fleet.admin)

    assert fleet.heard() == ["default"]
    assert hold(fleet.admin, "default", "other", worker_id="other") == ["default", "other"]


def test_wakeups_can_be_held_again_when_their_holder_is_silent(fleet: Fleet, holder: Connection) -> None:
    clock = Clock(fleet.admin)
    hold(holder, "default")
    clock.advance(0.4)
    assert hold(fleet.admin, "default", worker_id="other") == []
    hold(holder, "default")
    clock.advance(0.4)
    assert hold(fleet.admin, "default", worker_id="other") == [], "it said in time that it goes on"
    clock.advance(0.2)

    enqueue(fleet.admin)

    assert fleet.heard() == ["default"]
    assert hold(fleet.admin, "default", worker_id="other") == ["default"]


def test_wakeups_are_not_held_for_ever_when_the_clock_is_set_back(fleet: Fleet, holder: Connection) -> None:
    hold(holder, "default")
    Clock(fleet.admin).advance(-3600)

    enqueue(fleet.admin)

    assert fleet.heard() == ["default"]
    assert hold(fleet.admin, "default", worker_id="other") == ["default"]


def test_an_open_enqueue_does_not_prevent_holding_wakeups(db: Database, fleet: Fleet) -> None:
    client = db.connect("holdfast_client", autocommit=False)
    enqueue(client)
    enqueue_many(client, [{"type": "default.work"}])

    assert hold(fleet.admin, "default") == ["default"]


def test_notify_idle_wakes_idle_workers_for_new_tasks(fleet: Fleet, holder: Connection) -> None:
    hold(holder, "default", "other")
    enqueue(fleet.admin)
    enqueue(fleet.admin, "default.more")
    enqueue(fleet.admin, "other.work")

    assert notify_idle(holder, "default", "other")

    assert fleet.heard() == ["default"], "no idle worker serves the other"


def test_notify_idle_wakes_workers_that_serve_by_prefix(fleet: Fleet, holder: Connection) -> None:
    fleet.register("w2", queues=[], type_prefixes=["media."])
    enqueue(fleet.admin, "media.cut", queue="elsewhere")
    fleet.heard()

    notify_idle(holder, "elsewhere")

    assert fleet.heard() == ["elsewhere"]


def test_notify_idle_notifies_nobody_if_no_worker_is_idle(fleet: Fleet, holder: Connection) -> None:
    fleet.register(idle=False)
    enqueue(fleet.admin)

    assert notify_idle(holder, "default")

    assert fleet.heard() == []


@pytest.mark.parametrize(
    "why", ["nothing came", "it was taken", "it is for later", "it waits longer", "it is paused"]
)
def test_nobody_is_woken_for_what_cannot_be_had(fleet: Fleet, holder: Connection, why: str) -> None:
    clock = Clock(fleet.admin)
    fleet.register(idle=False)
    if why != "nothing came":
        enqueue(fleet.admin, run_at=clock.after(60) if why == "it is for later" else None)
    if why == "it was taken":
        claim_one(fleet.admin)
    elif why == "it waits longer":
        clock.advance(1)
    elif why == "it is paused":
        answer(fleet.admin, "queues.pause", {"queue": "default"})
    fleet.register()

    assert not notify_idle(holder, "default")

    assert fleet.heard() == []


def test_a_task_that_an_operator_makes_due_is_left_to_the_holder(fleet: Fleet, holder: Connection) -> None:
    clock = Clock(fleet.admin)
    task_id = enqueue(fleet.admin, run_at=clock.after(60))
    hold(holder, "default")

    act(fleet.admin, "reschedule", task_id, run_at=clock.now)

    assert fleet.heard() == []
    assert notify_idle(holder, "default")
