"""queues.watch: who waits for a task is told when it ends."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, act, answer, claim, claim_one, end, enqueue, refused, sweep, value


def _watch(conn: Connection, task_id: Any, **arguments: Any) -> Any:
    return answer(conn, "queues.watch", {"task_id": task_id, **arguments})


def _heard(listener: Connection, admin: Connection) -> list[str]:
    admin.execute("notify holdfast_done, 'that was all'")
    heard = []
    for notice in listener.notifies(timeout=30):
        if notice.payload == "that was all":
            break
        heard.append(notice.payload)
    return heard


def test_it_answers_the_status_now(tx: Connection) -> None:
    task_id = enqueue(tx)
    assert _watch(tx, task_id) == "pending"

    end(tx, claim_one(tx))
    assert _watch(tx, task_id) == "succeeded"


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "cancel", "sweep"])
def test_every_way_to_end_tells_those_who_wait_once(db: Database, ending: str) -> None:
    admin, client = db.connect(), db.connect("holdfast_client")
    clock = Clock(admin)
    client.execute("listen holdfast_done")
    task_id = enqueue(client, max_attempts=1)
    _watch(client, task_id)
    _watch(client, task_id)
    task = claim_one(admin)

    if ending == "cancel":
        act(admin, "cancel", task_id)
    elif ending == "sweep":
        clock.advance(31)
        sweep(admin)
    else:
        end(admin, task, ending)

    assert _heard(client, admin) == [str(task_id)]


def test_nobody_is_told_of_a_task_that_nobody_watches_or_that_goes_on(db: Database) -> None:
    admin, client = db.connect(), db.connect("holdfast_client")
    client.execute("listen holdfast_done")
    watched = enqueue(client, priority=1)
    enqueue(client)
    _watch(client, watched)
    first, second = claim(admin, max_tasks=2)

    end(admin, first, "retry")
    end(admin, second)

    assert _heard(client, admin) == []


def test_a_watch_ends_by_itself(tx: Connection, clock: Clock) -> None:
    _watch(tx, enqueue(tx), ttl=timedelta(seconds=5))
    clock.advance(6)

    sweep(tx)

    assert value(tx, "select count(*) from queues.waiter") == 0


@pytest.mark.parametrize("ttl", [None, "0", "-1 second", "2 hours"])
def test_a_time_that_cannot_be_meant_is_refused(tx: Connection, ttl: Any) -> None:
    with refused(tx, "QF400", "ttl"):
        _watch(tx, enqueue(tx), ttl=ttl)


def test_a_client_can_watch_its_own_tasks_only(db: Database) -> None:
    task_id = enqueue(db.connect())

    with pytest.raises(psycopg.Error) as caught:
        _watch(db.connect("holdfast_client"), task_id)
    assert caught.value.sqlstate == "QF404"
    assert _watch(db.connect("holdfast_reader"), task_id) == "pending"


@pytest.mark.parametrize("function", ["watch", "watch_many"])
def test_what_an_application_writes_after_it_has_watched_is_durable(db: Database, function: str) -> None:
    task_id = enqueue(db.connect("holdfast_client"))
    client = db.connect("holdfast_client", autocommit=False)
    asked = "%s" if function == "watch" else "array[%s]::uuid[]"
    client.execute(f"select queues.{function}({asked})".encode(), [task_id])
    assert value(client, "show synchronous_commit") == "on"


def test_an_enqueue_stays_durable_when_it_is_watched_in_the_same_transaction(db: Database) -> None:
    client = db.connect("holdfast_client", autocommit=False)

    _watch(client, enqueue(client))

    assert value(client, "show synchronous_commit") == "on"
