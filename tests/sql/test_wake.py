"""Wake-ups: sent when an idle worker can use them, once per statement, and only then."""

from datetime import timedelta

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Row,
    act,
    answer,
    call,
    claim,
    claim_one,
    end,
    enqueue,
    enqueue_many,
    held,
    release,
    sweep,
)
from support.fleet import Fleet


@pytest.fixture
def fleet(db: Database) -> Fleet:
    return Fleet(db)


def test_an_idle_worker_is_woken_for_its_queue(fleet: Fleet) -> None:
    fleet.register()

    enqueue(fleet.admin)

    assert fleet.heard() == ["default"]


def test_a_session_that_is_quiet_wakes_nobody(fleet: Fleet) -> None:
    """For Citus: PostgreSQL cannot prepare a transaction that has notified."""
    fleet.register()
    fleet.admin.execute("set holdfast.quiet = on")

    enqueue(fleet.admin)
    enqueue_many(fleet.admin, [{"type": "default.work"}] * 3)

    assert fleet.heard() == []


def test_a_session_that_is_quiet_does_not_notify_of_what_ends_or_resumes(fleet: Fleet) -> None:
    fleet.register()
    fleet.listener.execute("listen holdfast_done")
    call(fleet.admin, "queues.set_limit", {"subject": "queue", "name": "default", "max_running": 1})
    first, _ = enqueue(fleet.admin), enqueue(fleet.admin)
    answer(fleet.admin, "queues.watch", {"task_id": first})
    call(fleet.admin, "queues.pause", {"queue": "other"})
    fleet.heard()

    fleet.admin.execute("set holdfast.quiet = on")
    act(fleet.admin, "cancel", first)
    call(fleet.admin, "queues.resume", {"queue": "other"})

    assert fleet.heard() == []
    fleet.admin.execute("set holdfast.quiet = off")
    assert answer(fleet.admin, "queues.watch", {"task_id": first}) == "cancelled"


def test_an_idle_worker_is_woken_for_its_prefix(fleet: Fleet) -> None:
    fleet.register(type_prefixes=["media."])

    enqueue(fleet.admin, "media.cut", queue="elsewhere")
    enqueue_many(fleet.admin, [{"type": "media.cut", "queue": "elsewhere"}])

    assert fleet.heard() == ["elsewhere", "elsewhere"]


def test_nobody_is_woken_when_none_of_the_idle_subscribes(fleet: Fleet) -> None:
    fleet.register("w1", idle=True, queues=["other"], type_prefixes=["media."])
    fleet.register("w2", idle=False)

    enqueue(fleet.admin)
    enqueue(fleet.admin, "mediaplus.x")
    enqueue_many(fleet.admin, [{"type": "default.work"}] * 3)

    assert fleet.heard() == []


def test_a_statement_sends_one_wake_up_per_queue(fleet: Fleet) -> None:
    fleet.register(queues=["a", "b"])

    enqueue_many(fleet.admin, [{"type": f"{'ab'[n % 2]}.t{n % 5}"} for n in range(50)])

    assert sorted(fleet.heard()) == ["a", "b"]


def test_a_task_for_later_wakes_nobody(fleet: Fleet) -> None:
    clock = Clock(fleet.admin)
    fleet.register()

    enqueue(fleet.admin, run_at=clock.after(60))
    enqueue_many(fleet.admin, [{"type": "default.work", "run_at": clock.after(60).isoformat()}])

    assert fleet.heard() == []


def test_a_key_that_is_taken_wakes_nobody(fleet: Fleet) -> None:
    enqueue(fleet.admin, idempotency_key="k")
    fleet.register()

    enqueue(fleet.admin, idempotency_key="k")

    assert fleet.heard() == []


def test_what_is_rolled_back_wakes_nobody(fleet: Fleet, db: Database) -> None:
    fleet.register()
    client = db.connect("holdfast_client", autocommit=False)

    enqueue(client)
    client.rollback()

    assert fleet.heard() == []


@pytest.mark.parametrize("function", ["retry", "restore_task", "reschedule"])
def test_a_person_who_makes_a_task_due_wakes_an_idle_worker(fleet: Fleet, function: str) -> None:
    clock = Clock(fleet.admin)
    task_id = enqueue(fleet.admin, run_at=clock.after(60 if function == "reschedule" else 0))
    if function == "retry":
        end(fleet.admin, claim_one(fleet.admin), "failed")
    elif function == "restore_task":
        act(fleet.admin, "delete_task", task_id)
    fleet.register()

    act(fleet.admin, function, task_id, **({"run_at": clock.now} if function == "reschedule" else {}))

    assert fleet.heard() == ["default"]


@pytest.mark.parametrize("function", ["sweep", "release"])
def test_what_is_put_back_wakes_an_idle_worker_once_per_queue(fleet: Fleet, function: str) -> None:
    clock = Clock(fleet.admin)
    enqueue_many(fleet.admin, [{"type": f"default.t{n % 2}"} for n in range(6)])
    tasks = claim(fleet.admin, max_tasks=6)
    fleet.register()
    if function == "sweep":
        clock.advance(31)
        sweep(fleet.admin)
    else:
        release(fleet.admin, held(*tasks))

    assert fleet.heard() == ["default"]


def test_putting_a_task_off_wakes_nobody(fleet: Fleet) -> None:
    clock = Clock(fleet.admin)
    task_id = enqueue(fleet.admin)
    fleet.register()

    act(fleet.admin, "reschedule", task_id, run_at=clock.after(60))

    assert fleet.heard() == []


def test_what_a_silent_worker_held_wakes_an_idle_one(fleet: Fleet) -> None:
    clock = Clock(fleet.admin)
    enqueue_many(fleet.admin, [{"type": "default.work"}, {"type": "default.more"}] * 2)
    claim(fleet.admin, "silent", max_tasks=4, lease=timedelta(seconds=1))
    fleet.register()

    clock.advance(2)
    sweep(fleet.admin)

    assert fleet.heard() == ["default"]


def test_what_is_given_back_wakes_an_idle_worker(fleet: Fleet) -> None:
    enqueue_many(fleet.admin, [{"type": "default.work"}, {"type": "default.more"}] * 2)
    tasks = claim(fleet.admin, "leaving", max_tasks=4)
    fleet.register()

    release(fleet.admin, held(*tasks), "leaving")

    assert fleet.heard() == ["default"]


def test_resuming_a_queue_wakes_its_workers(fleet: Fleet) -> None:
    answer(fleet.admin, "queues.pause", {"queue": "default"})
    fleet.register()

    answer(fleet.admin, "queues.resume", {"queue": "default"})

    assert fleet.heard() == ["default"]


def test_a_wake_up_holds_nothing_but_the_name_of_the_queue(fleet: Fleet) -> None:
    fleet.register(queues=["q" * 200])

    enqueue(fleet.admin, "q" * 200, payload={"secret": "x" * 9000})

    assert fleet.heard() == ["q" * 200]


@pytest.fixture
def behind(fleet: Fleet) -> Row:
    """What a busy worker runs; another task of its key waits in a queue that an idle worker serves."""
    fleet.register("idle", queues=["other"])
    fleet.register("busy", idle=False)
    enqueue(fleet.admin, concurrency_key="customer")
    task = claim_one(fleet.admin, "busy")
    enqueue(fleet.admin, concurrency_key="customer", queue="other", priority=7)
    assert fleet.heard() == ["other"]
    assert claim(fleet.admin, "idle", queues=["other"]) == []
    return task


@pytest.mark.parametrize("way", ["succeeded", "retry", "cancel", "lease_expired"])
def test_the_end_of_a_task_wakes_those_who_wait_for_its_slot(fleet: Fleet, behind: Row, way: str) -> None:
    if way == "cancel":
        act(fleet.admin, "cancel", behind["task_id"])
    elif way == "lease_expired":
        Clock(fleet.admin).advance(31)
        sweep(fleet.admin)
    else:
        end(fleet.admin, behind, way, worker_id="busy")

    assert fleet.heard() == ["other"]


@pytest.mark.parametrize("serves", [True, False])
@pytest.mark.parametrize("looks_again", [True, False])
def test_a_worker_that_looks_again_by_itself_is_not_woken_for_a_slot(
    fleet: Fleet, behind: Row, serves: bool, looks_again: bool
) -> None:
    fleet.register("busy", queues=["default", "other"] if serves else ["default"])
    results = held(behind, status="succeeded")

    call(fleet.admin, "queues.finish", {"worker_id": "busy", "results": results, "looks_again": looks_again})

    assert fleet.heard() == ([] if serves and looks_again else ["other"])


@pytest.mark.parametrize("subject", ["queue", "type"])
def test_the_end_of_a_limited_task_wakes_idle_workers_of_its_queue(fleet: Fleet, subject: str) -> None:
    name = {"queue": "default", "type": "default.work"}[subject]
    call(fleet.admin, "queues.set_limit", {"subject": subject, "name": name, "max_running": 1})
    for _ in range(2):
        enqueue(fleet.admin)
    task = claim_one(fleet.admin)
    fleet.register("idle")

    end(fleet.admin, task)

    assert fleet.heard() == ["default"]
