"""A queue of notifications that a login without any role has filled: the engine goes on without them."""

import os
from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.postgres.installation import EMBEDDED_VERSION
from holdfast._install.schema import migrate
from support.comms import CHANNELS
from support.database import Database
from support.engine import Connection, answer, call, claim_one, end, enqueue, value
from support.health import line
from support.outbox import emit, subscribe
from support.server import DISPOSABLE, disposable_home

EMAIL = CHANNELS[0]

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        int(os.environ.get("HOLDFAST_TEST_PG", "18")) < EMBEDDED_VERSION,
        reason="before PostgreSQL 17 the queue always has 8 GB",
    ),
]


@pytest.fixture(scope="module")
def small() -> Iterator[Database]:
    """A server whose queue has half a megabyte. A listener stays in a transaction, and the queue is full."""
    with disposable_home(EMBEDDED_VERSION) as home:
        server = EmbeddedServer(home, EMBEDDED_VERSION, DISPOSABLE | {"max_notify_queue_pages": "64"})
        server.start()
        migrate(server.url("postgres"))
        database = Database(server, "postgres")
        yield database
        database.close()


@pytest.fixture(scope="module")
def stranger(small: Database) -> Iterator[Connection]:
    small.connect().execute("create role nobody0 login")
    with (
        psycopg.connect(small.dsn_as("nobody0"), autocommit=True) as listener,
        psycopg.connect(small.dsn_as("nobody0"), autocommit=True) as sender,
    ):
        listener.execute("listen nothing")
        listener.execute("begin")
        listener.execute("select 1")
        for number in count():
            try:
                sender.execute("select pg_notify('nothing', repeat('a', 7900) || %s::text)", [number])
            except psycopg.errors.ProgramLimitExceeded:
                break
        yield listener


def test_a_full_queue_of_notifications_stops_neither_enqueues_nor_ends(
    small: Database, stranger: Connection
) -> None:
    admin, client, worker = (
        small.connect(),
        small.connect("holdfast_client"),
        small.connect("holdfast_worker"),
    )
    call(worker, "queues.register_worker", {"worker_id": "w1", "hostname": "here", "concurrency": 1})
    call(worker, "queues.mark_idle", {"worker_id": "w1", "idle": True})
    call(admin, "queues.set_limit", {"subject": "queue", "name": "default", "max_running": 1})
    waiting = {"dispatcher_id": "d1", "waiting": [subscribe(admin)]}
    call(small.connect("holdfast_dispatcher"), "queues.dispatcher_heartbeat", waiting)

    awaited, _ = enqueue(client), enqueue(client)
    answer(client, "queues.watch", {"task_id": awaited})
    assert end(worker, claim_one(worker)) == "accepted"
    emit(client)
    call(admin, "queues.pause", {"queue": "default"})
    call(admin, "queues.resume", {"queue": "default"})
    call(worker, "queues.notify_idle", {"queues": ["default"]})
    call(worker, "queues.release_wakeups", {"worker_id": "w1", "queues": ["default"]})

    assert answer(client, "queues.watch", {"task_id": awaited}) == "succeeded"


def test_a_full_queue_of_notifications_stops_no_end_of_a_process(
    small: Database, stranger: Connection
) -> None:
    admin = small.connect()
    send = EMAIL.kick_off(admin)
    key = value(admin, "select wait_key from queues.process_status where process_id = %s", [send])
    call(admin, "queues.watch_processes", {"wait_keys": [key]})
    EMAIL.supervise(admin, send)
    EMAIL.succeed(admin, send)
    EMAIL.supervise(admin, send)

    status = value(admin, "select status from queues.process_status where process_id = %s", [send])
    assert status == "succeeded"


def test_health_names_the_session_that_holds_the_queue(small: Database, stranger: Connection) -> None:
    admin = small.connect()
    hidden = line(admin, "notification_queue")
    assert (hidden["level"], hidden["subject"]) == ("red", None)
    assert "grant pg_read_all_stats to" in hidden["advice"]
    admin.execute("grant pg_read_all_stats to holdfast_owner")

    found = line(admin, "notification_queue")
    pid = stranger.info.backend_pid
    assert (found["level"], found["subject"]) == ("red", f"session {pid}")
    assert f"session {pid} of nobody0" in found["message"]
    assert f"pg_terminate_backend({pid})" in found["advice"]
