"""The server, the network and other sessions fail in ways that are not the fault of any task."""

import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from acceptance import mixed_rules
from acceptance.fleet import Fleet
from acceptance.ground import VERSION, Ground, durable_ground, wait_until_quiet
from acceptance.mixed import Mixed, prepare
from acceptance.test_mixed import FAULTS, SECONDS
from acceptance.trial import FULL, chance, counted, sized, tell, trial
from acceptance.waiting import wait_for
from holdfast._engine import Engine, enqueue
from holdfast._engine.enqueue import NewTask
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.postgres.installation import binaries
from support import engine
from support.database import Database
from support.engine import Connection
from support.invariant import assert_invariant
from support.wire import Wire

WORKERS = {"HOLDFAST_LEASE": 2.0, "HOLDFAST_HEARTBEAT": 0.5, "WORKER_CONCURRENCY": 10, "POLL_INTERVAL": "1s"}
TASKS = sized(60, 200, 2000)
TRANSIENT = ["58030", "XX000", "XX001", "55000", "25P04", "53100", "53200", "40P01", "40001", "57014"]
"""Errors of a server that work a moment later."""


def enqueue_once_only(ground: Ground, count: int, seconds: float = 0.02) -> list[UUID]:
    """Tasks that become dead letters if anything uses up an attempt."""
    tasks = [
        NewTask("acceptance.work", {"label": f"once-{n}", "seconds": [seconds]}, max_attempts=1)
        for n in range(count)
    ]
    return [one.task_id for one in Engine(ground.conn).run(enqueue.enqueue_many(tasks))]


def assert_each_ran_once(ground: Ground, task_ids: list[UUID]) -> None:
    found = "select status, count(*) as n from queues.task_status where task_id = any(%s) group by status"
    statuses = {row["status"]: row["n"] for row in engine.rows(ground.conn, found, [task_ids])}
    assert statuses == {"succeeded": len(task_ids)}
    starts = Counter(len(found) for found in ground.witness.starts().values())
    assert starts == {1: len(task_ids)}


@trial("P3", "P4", everyday=False)
@pytest.mark.full
@pytest.mark.timeout(600 if FULL else 240)
def test_claims_whose_answers_are_lost_or_late_use_up_no_attempt(ground: Ground) -> None:
    with Wire(ground.database.dsn, chance("claims")).running() as wire:
        wire.disturb(b"queues.claim(", lost=0.15, late=0.15, seconds=2.5)
        ground.fleet.start(2, WORKERS | {"DATABASE_URL": ground.through(wire.port, "holdfast_worker")})
        task_ids = []
        for _ in range(sized(6, 10, 40)):
            task_ids += enqueue_once_only(ground, TASKS // 10)
            ground.wait_for_end(*task_ids[-TASKS // 20 :])
        ground.quiesce(200)
    assert_each_ran_once(ground, task_ids)
    tell(f"{len(task_ids)} tasks with one attempt, {wire.cuts} claims lost, {wire.late} late: each ran once")
    assert wire.cuts + wire.late > 0


@trial("P3", "P4", everyday=False)
@pytest.mark.full
@pytest.mark.timeout(600 if FULL else 240)
def test_cancels_that_are_rolled_back_use_up_no_attempt(ground: Ground) -> None:
    """A worker gives prefetched tasks back while other sessions hold them for a cancel."""
    task_ids = enqueue_once_only(ground, TASKS, seconds=0.1)
    with open_cancels(ground, task_ids) as cancelled:
        ground.fleet.start(2, WORKERS | {"WORKER_CONCURRENCY": 2})
        wait_for("cancels to be rolled back", lambda: sum(cancelled) >= sized(20, 50, 400), 120)
    ground.quiesce(200)
    assert_each_ran_once(ground, task_ids)
    tell(f"{len(task_ids)} tasks with one attempt, {sum(cancelled)} cancels rolled back: each ran once")


@contextmanager
def open_cancels(ground: Ground, task_ids: list[UUID]) -> Iterator[list[int]]:
    ended, done = threading.Event(), [0]
    victims = chance("cancels")

    def work() -> None:
        with psycopg.connect(ground.database.dsn) as session:
            while not ended.wait(0.05):
                for task_id in victims.sample(task_ids, 5):
                    try:
                        session.execute("select queues.cancel(%s)", [task_id])
                    except psycopg.OperationalError:  # its worker is just reporting it
                        break
                    done[0] += 1
                ended.wait(1.0)
                session.rollback()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join()


@trial("P1", "P3", "P11", everyday=False)
@pytest.mark.full
@pytest.mark.timeout(600 if FULL else 240)
def test_errors_of_the_server_are_not_errors_of_the_tasks(ground: Ground) -> None:
    """What stores results, steps and leases fails now and then, each time in another way."""
    conn = ground.conn
    prepare(conn)
    plant_errors(conn)
    ground.fleet.start(2, WORKERS | {"HOLDFAST_LEASE": 5.0})
    run_mixed(ground, conn)
    raised = engine.value(conn, "select last_value from planted_error")
    heal(conn)
    tell(f"{raised} errors of the server of {len(TRANSIENT)} kinds, no task failed")
    assert raised > 1


TABLES = ("outcome", "step", "lease")
FAIL_SOMETIMES = """
    create function planted_error() returns trigger language plpgsql security definer as $$
    begin
      if random() < 0.02 then
        raise exception 'planted' using
          errcode = (string_to_array('{states}', ' '))[1 + nextval('planted_error') % {count}];
      end if;
      return new;
    end $$"""


def plant_errors(conn: Connection) -> None:
    conn.execute("create sequence planted_error")
    conn.execute(FAIL_SOMETIMES.format(states=" ".join(TRANSIENT), count=len(TRANSIENT)).encode())
    for table in TABLES:
        create = f"create trigger planted before insert on queues.{table} for each row"
        conn.execute(f"{create} execute function planted_error()".encode())


def heal(conn: Connection) -> None:
    for table in TABLES:
        conn.execute(f"drop trigger planted on queues.{table}".encode())


@trial("P1", "P3", "P5", "P11", everyday=False)
@pytest.mark.full
@pytest.mark.timeout(600 if FULL else 240)
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_everything_holds_under_a_publication_and_another_isolation(ground: Ground, isolation: str) -> None:
    """As for a database that is copied by logical replication, or whose default is stricter."""
    conn = ground.conn
    prepare(conn)
    conn.execute("create publication everything for all tables")
    conn.execute(f"alter database holdfast set default_transaction_isolation = '{isolation}'")
    ground.fleet.start(2, WORKERS)
    run_mixed(ground, ground.conn, kill=True)


def run_mixed(ground: Ground, conn: Connection, *, kill: bool = False) -> None:
    victims = chance("victims")
    load = Mixed(ground.database.dsn_as("holdfast_client"))
    with load.working():
        for _ in range(FAULTS):
            threading.Event().wait(SECONDS / FAULTS)
            if kill:
                wait_for("both to be at work", lambda: len(ground.fleet.ready) == 2)
                victims.choice(ground.fleet.ready).kill()
                ground.fleet.launch(WORKERS)
    ground.quiesce(200)
    cases = load.take_cases()
    conn.execute("set default_transaction_isolation = 'read committed'")
    assert_invariant(conn)
    broken = mixed_rules.check(conn, cases, ground.witness.lines())
    assert not broken, "\n".join(broken[:20])
    kinds = Counter(case.kind for case in cases)
    tell(f"{counted(kinds)}; {load.repeated} calls repeated")
    assert kinds.keys() == {*mixed_rules.RULES}


@trial("P1", "P3", "P10", everyday=False)
@pytest.mark.full
@pytest.mark.timeout(600 if FULL else 240)
def test_everything_goes_on_after_a_restore_into_a_new_cluster(ground: Ground, tmp_path: Path) -> None:
    """The new cluster counts its transactions from the beginning."""
    conn = ground.conn
    prepare(conn)
    for _ in range(2000):  # so that the old cluster is ahead
        conn.execute("select pg_current_xact_id()")
    load = Mixed(ground.database.dsn_as("holdfast_client"))
    (worker,) = ground.fleet.start(1, WORKERS)
    with load.working():
        threading.Event().wait(SECONDS / 2)
    worker.kill()
    dump = tmp_path / "dump.sql"
    subprocess.run([binaries(VERSION) / "pg_dump", "--file", dump, ground.database.dsn], check=True)
    # Its own database has the roles, which a dump does not have.
    with durable_ground(tmp_path, VERSION) as new, restored_database(new.server, dump) as restored:
        fleet = Fleet(restored.dsn_as("holdfast_worker"), ground.witness, tmp_path)
        try:
            fleet.start(2, WORKERS)
            conn = restored.connect()
            wait_until_quiet(conn, 120)
            assert_invariant(conn)
            broken = mixed_rules.check(conn, load.take_cases(), ground.witness.lines())
            assert not broken, "\n".join(broken[:20])
        finally:
            fleet.close()


@contextmanager
def restored_database(server: EmbeddedServer, dump: Path) -> Iterator[Database]:
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute("create database restored")
    restored = Database(server, "restored")
    restored.dsn_as("holdfast_client")  # makes the logins
    psql: list[str | Path] = [
        binaries(VERSION) / "psql",
        "--quiet",
        "--no-psqlrc",
        "--set",
        "ON_ERROR_STOP=1",
    ]
    subprocess.run([*psql, "--file", dump, restored.dsn], check=True, stdout=subprocess.DEVNULL)
    try:
        yield restored
    finally:
        restored.close()
