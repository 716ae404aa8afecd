"""The wake-up throttle: while a worker holds it, enqueueing wakes no worker; its holder does."""

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, act, answer, claim_one, enqueue, enqueue_many
from support.fleet import Fleet


@pytest.fixture
def fleet(db: Database) -> Fleet:
    fleet = Fleet(db)
    fleet.register()
    return fleet


@pytest.fixture
def holder(db: Database) -> Connection:
    return db.connect("holdfast_worker")


def keep(session: Connection, *queues: str | None, worker_id: str = "keeper") -> list[str]:
    kept: list[str] = answer(session, "queues.hold_wakeups", {"worker_id": worker_id, "queues": list(queues)})
    return sorted(kept)


def notify_idle(session: Connection, *queues: str) -> bool:
    found: bool = answer(session, "queues.notify_idle", {"queues": list(queues)})
    return found


def test_who_enqueues_while_the_door_is_kept_wakes_nobody(fleet: Fleet, holder: Connection) -> None:
    assert keep(holder, "default") == ["default"]

    enqueue(fleet.admin)
    enqueue_many(fleet.admin, [{"type": "default.work"}] * 3)

    assert fleet.heard() == []


def test_another_queue_has_another_door(fleet: Fleet, holder: Connection) -> None:
    fleet.register("w2", queues=["other"])
    keep(holder, "default")

    enqueue(fleet.admin, "other.work")
    enqueue_many(fleet.admin, [{"type": "other.work"}, {"type": "default.work"}])

    assert fleet.heard() == ["other", "other"]


def test_a_door_is_kept_by_one(db: Database, holder: Connection) -> None:
    other = db.connect("holdfast_worker")
    keep(holder, "a", "b")

    assert keep(other, "b", "c", "c", None, worker_id="other") == ["c"]
    assert keep(holder, "a", "b") == ["a", "b"]


def test_a_door_is_free_when_its_keeper_leaves(fleet: Fleet, holder: Connection) -> None:
    kept = keep(holder, "default", "other")
    answer(holder, "queues.release_wakeups", {"worker_id": "other", "queues": kept})
    assert keep(fleet.admin, "default", worker_id="other") == []
    answer(holder, "queues.release_wakeups", {"worker_id": "keeper", "queues": kept})

    enqueue(fleet.admin)

    assert fleet.heard() == ["default"]
    assert keep(fleet.admin, "default", "other", worker_id="other") == ["default", "other"]


def test_a_door_is_free_when_its_keeper_is_silent(fleet: Fleet, holder: Connection) -> None:
    clock = Clock(fleet.admin)
    keep(holder, "default")
    clock.advance(0.4)
    assert keep(fleet.admin, "default", worker_id="other") == []
    keep(holder, "default")
    clock.advance(0.4)
    assert keep(fleet.admin, "default", worker_id="other") == [], "it said in time that it goes on"
    clock.advance(0.2)

    enqueue(fleet.admin)

    assert fleet.heard() == ["default"]
    assert keep(fleet.admin, "default", worker_id="other") == ["default"]


def test_a_door_is_not_kept_for_ever_when_the_clock_is_set_back(fleet: Fleet, holder: Connection) -> None:
    keep(holder, "default")
    Clock(fleet.admin).advance(-3600)

    enqueue(fleet.admin)

    assert fleet.heard() == ["default"]
    assert keep(fleet.admin, "default", worker_id="other") == ["default"]


def test_who_enqueues_does_not_keep_anybody_from_the_door(db: Database, fleet: Fleet) -> None:
    client = db.connect("holdfast_client", autocommit=False)
    enqueue(client)
    enqueue_many(client, [{"type": "default.work"}])

    assert keep(fleet.admin, "default") == ["default"]


def test_ringing_wakes_idle_workers_for_what_came(fleet: Fleet, holder: Connection) -> None:
    keep(holder, "default", "other")
    enqueue(fleet.admin)
    enqueue(fleet.admin, "default.more")
    enqueue(fleet.admin, "other.work")

    assert notify_idle(holder, "default", "other")

    assert fleet.heard() == ["default"], "nobody who is idle serves the other"


def test_ringing_wakes_those_who_serve_by_prefix(fleet: Fleet, holder: Connection) -> None:
    fleet.register("w2", queues=[], type_prefixes=["media."])
    enqueue(fleet.admin, "media.cut", queue="elsewhere")
    fleet.heard()

    notify_idle(holder, "elsewhere")

    assert fleet.heard() == ["elsewhere"]


def test_ringing_with_nobody_idle_is_heard_by_nobody(fleet: Fleet, holder: Connection) -> None:
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


def test_a_person_who_makes_a_task_due_leaves_it_to_the_keeper(fleet: Fleet, holder: Connection) -> None:
    clock = Clock(fleet.admin)
    task_id = enqueue(fleet.admin, run_at=clock.after(60))
    keep(holder, "default")

    act(fleet.admin, "reschedule", task_id, run_at=clock.now)

    assert fleet.heard() == []
    assert notify_idle(holder, "default")
