"""queues.nudge: a waiting task becomes due now, for every caller that may execute it."""

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from support.clock import Clock
from support.comms import CHANNELS
from support.database import Database
from support.engine import Connection, act, claim_one, counts, end, enqueue, events, status, value

EMAIL = CHANNELS[0]
UNKNOWN = "00000000-0000-7000-8000-000000000000"


def _nudge(conn: Connection, task_id: object) -> bool:
    return bool(value(conn, "select queues.nudge(%s)", [task_id]))


def test_a_task_that_waits_for_later_becomes_due(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, run_at=clock.after(3600))

    assert _nudge(tx, task_id) is True
    assert (status(tx, task_id)["status"], status(tx, task_id)["run_at"]) == ("pending", clock.now)
    moved = events(tx, task_id)[-1]
    assert (moved["event_type"], moved["reason"]) == ("rescheduled", "nudged")


def test_a_task_that_is_due_keeps_its_place(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx)
    clock.advance(10)

    assert _nudge(tx, task_id) is False
    assert status(tx, task_id)["run_at"] == clock.after(-10)


def test_a_task_that_runs_has_ended_is_deleted_or_never_was_is_left_alone(
    tx: Connection, clock: Clock
) -> None:
    enqueue(tx)
    running = claim_one(tx)
    enqueue(tx)
    ended = claim_one(tx)
    end(tx, ended)
    deleted = enqueue(tx, run_at=clock.after(60))
    act(tx, "delete_task", deleted)
    before = counts(tx)

    for task_id in (running["task_id"], ended["task_id"], deleted, UNKNOWN, None):
        assert _nudge(tx, task_id) is False
    assert counts(tx) == before


def test_it_counts_no_attempt(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, max_attempts=1)
    end(tx, claim_one(tx), "snooze", run_at=clock.after(60).isoformat())

    assert _nudge(tx, task_id) is True
    assert claim_one(tx)["attempt"] == 1


def test_a_process_may_nudge_what_another_login_enqueued(db: Database) -> None:
    task_id = enqueue(db.connect("holdfast_client"), run_at="2099-01-01 00:00Z")

    assert _nudge(db.connect("holdfast_process"), task_id) is True


@pytest.mark.parametrize("role", ["holdfast_client", "holdfast_worker", "holdfast_operator"])
def test_nobody_else_may(db: Database, role: str) -> None:
    with pytest.raises(Exception, match="permission denied for function nudge"):
        _nudge(db.connect(role), UNKNOWN)


NUDGE_PROCESS = "select queues.nudge_process('comms.send_email', %s, 'the provider is back')"


def test_a_client_nudges_only_processes_of_its_namespace(db: Database) -> None:
    client, stranger = db.connect("holdfast_client"), db.connect("holdfast_process")
    send = EMAIL.kick_off(client, scheduled_at="2099-01-01 00:00Z")

    with pytest.raises(psycopg.Error, match=f"there is no comms.send_email {send}"):
        stranger.execute(NUDGE_PROCESS, [send])
    assert value(client, NUDGE_PROCESS, [send]) is True
    assert value(client, NUDGE_PROCESS, [send]) is False
    nudged = value(
        db.connect(),
        """select array_agg(e.reason) from queues.task_event e join queues.process_status s using (task_id)
           where s.process_id = %s and e.event_type = 'rescheduled'""",
        [send],
    )
    assert nudged == ["nudged: the provider is back"]


def test_an_operator_nudges_every_process(db: Database) -> None:
    send = EMAIL.kick_off(db.connect("holdfast_client"), scheduled_at="2099-01-01 00:00Z")

    assert value(db.connect("holdfast_operator"), NUDGE_PROCESS, [send]) is True


def test_a_supervisor_that_a_worker_gives_back_meanwhile_is_not_missing(db: Database) -> None:
    """The worker's transaction locks the leases, so that a nudge is stopped before it reads them."""
    client, worker, admin = db.connect("holdfast_client"), db.connect(), db.connect()
    send = EMAIL.kick_off(client)
    task = value(admin, "select s.task_id from queues.process_status s where s.process_id = %s", [send])
    queue = value(admin, "select t.queue from queues.task_status t where t.task_id = %s", [task])
    claimed = value(worker, "select c.token from queues.claim('w9', 1, array[%s]) c", [queue])
    with ThreadPoolExecutor() as pool:
        with worker.transaction():
            worker.execute("lock table queues.lease in access exclusive mode")
            nudged = pool.submit(value, client, NUDGE_PROCESS, [send])
            stopped = "select exists (select from pg_locks l where not l.granted and l.pid = %s)"
            until = time.monotonic() + 20
            while not value(admin, stopped, [client.info.backend_pid]) and time.monotonic() < until:
                time.sleep(0.02)
            worker.execute(
                """select queues.release('w9', jsonb_build_array(
                     jsonb_build_object('task_id', %s::text, 'token', %s::bigint)))""",
                [str(task), claimed],
            )
        assert nudged.result(timeout=20) is False
