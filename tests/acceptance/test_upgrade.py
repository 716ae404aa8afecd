"""The schema is upgraded to a next release while clients enqueue and workers claim and finish."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from uuid import UUID

import psycopg
import pytest

from acceptance import mixed_rules
from acceptance.checker import check_only
from acceptance.fleet import Fleet
from acceptance.former import FormerRelease
from acceptance.ground import VERSION, Ground
from acceptance.mixed import Mixed, prepare
from acceptance.producer import Producer
from acceptance.trial import sized, tell, trial
from acceptance.witness import Witness
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import SCHEMA_VERSION, migrate
from holdfast.errors import HoldfastError, TransactionConflict, translate
from support import engine
from support.database import Database
from support.engine import Connection
from support.fingerprint import fingerprint
from support.invariant import assert_invariant
from support.releases import Release
from support.server import disposable_home

SECONDS = sized(1, 2, 10)
WORKERS = {"HOLDFAST_LEASE": 3.0, "HOLDFAST_HEARTBEAT": 0.5, "WORKER_CONCURRENCY": 20, "POLL_INTERVAL": "1s"}
_TICK = ["tick", '{"label": "tick", "seconds": [0]}']


class OldWorker(threading.Thread):
    """Claims and finishes by the functions of the contract, and knows nothing of releases."""

    def __init__(self, database: Database, name: str) -> None:
        super().__init__(name=name)
        self.accepted: Counter[UUID] = Counter()
        self.errors: list[HoldfastError] = []
        self.repeated = 0
        self.longest = 0.0
        self._conn = database.connect("holdfast_worker")
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.is_set():
            began = monotonic()
            try:
                self._work()
            except psycopg.Error as error:
                told = translate(error)
                if not isinstance(told, TransactionConflict):
                    self.errors.append(told)
                    return
                self.repeated += 1
            self.longest = max(self.longest, monotonic() - began)
            self._ended.wait(0.01)

    def _work(self) -> None:
        claimed = engine.claim(self._conn, self.name, max_tasks=10, queues=["acceptance"])
        if claimed:
            results = engine.held(*claimed, status="succeeded")
            verdicts = engine.finish(self._conn, results, self.name)
            told = zip(claimed, verdicts, strict=True)
            self.accepted += Counter(task["task_id"] for task, verdict in told if verdict == "accepted")


@contextmanager
def installed_by(install: Callable[[str], object]) -> Iterator[Database]:
    with disposable_home(VERSION) as home:
        server = EmbeddedServer(home, VERSION)
        install(server.start())
        database = Database(server, "holdfast")
        try:
            yield database
        finally:
            database.close()


@pytest.mark.full
@trial("P1", "P3", quick=True)
@pytest.mark.timeout(300)
def test_nothing_is_lost_or_refused_while_the_schema_is_upgraded(tmp_path: Path) -> None:
    with installed_by(migrate) as database:
        witness = Witness(tmp_path / "witness")
        workers = [OldWorker(database, f"old-{n}") for n in range(2)]
        producer = Producer(
            database.dsn_as("holdfast_client"),
            per_second=150,
            seconds=(0.0,),
            started=lambda: sum(worker.accepted.total() for worker in workers),
        )
        for worker in workers:
            worker.start()
        with producer.producing():
            sleep(SECONDS)
            before, began = len(producer.acknowledged), monotonic()
            lines: list[str] = []
            done = migrate(database.dsn, echo=lines.append, sources=_next_release(tmp_path / "sql").sources)
            took = monotonic() - began
            during = len(producer.acknowledged) - before
            sleep(SECONDS)
        for worker in workers:
            worker.end()
        assert [worker.errors for worker in workers] == [[], []]
        new = Ground(database.server, database, witness, _fleet(database, witness, tmp_path))
        try:
            last = new.enqueue("work", "last", seconds=[0])
            new.fleet.start_one()
            new.wait_for_end(last)
            new.quiesce()
        finally:
            new.fleet.close()
        conn = database.connect()
        assert_invariant(conn)
        accepted: Counter[UUID] = sum((worker.accepted for worker in workers), Counter())
        ended = {row["task_id"] for row in engine.rows(conn, "select task_id from queues.outcome")}
    tries = 1 + sum("trying again" in line for line in lines)
    repeated = producer.repeated + sum(worker.repeated for worker in workers)
    tell(
        f"{len(producer.acknowledged)} tasks, {done} in {took:.2f} s ({tries} tries), while {during} were "
        f"acknowledged; {repeated} calls that had begun before were told to try again, none anything "
        f"else; claiming and finishing took {max(worker.longest for worker in workers):.2f} s at most"
    )
    assert done.action == "upgrade"
    assert set(producer.acknowledged.values()) <= ended
    assert max(accepted.values()) == 1


def _next_release(root: Path) -> Release:
    """Changes a table that every call uses, and a function that every claim calls."""
    release = Release(root)
    release.write(
        f"migrations/{SCHEMA_VERSION + 1:04}_next.sql", "alter table queues.task add column extra text;"
    )
    release.append("functions/claim.sql", "-- changed\n")
    return release


def _fleet(database: Database, witness: Witness, directory: Path) -> Fleet:
    return Fleet(database.dsn_as("holdfast_worker"), witness, directory)


@pytest.mark.full
@trial("P1", "P3", "P10", "P11", quick=True)
@pytest.mark.timeout(400)
def test_nothing_is_lost_while_the_release_before_is_upgraded_in_place(tmp_path: Path) -> None:
    former = FormerRelease(tmp_path / "former")
    with installed_by(former.migrate) as database:
        witness = Witness(tmp_path / "witness")
        ground = Ground(database.server, database, witness, _fleet(database, witness, tmp_path))
        client = database.dsn_as("holdfast_client")
        load = Mixed(client, first=1_000_000)
        try:
            prepare(ground.conn)
            ground.conn.execute(
                "select queues.add_schedule(%s, 'acceptance.work', %s, every => '1 s')", _TICK
            )
            old = ground.fleet.start(2, WORKERS | former.environment)
            with former.clients(client, witness.path) as told:
                sleep(2 * SECONDS)
                began = monotonic()
                tries = _migrate_until_done(database.dsn)
                took = monotonic() - began
                sleep(SECONDS)  # workers and clients of both releases
                ground.fleet.start(2, WORKERS)
                for worker in old:
                    worker.ask_to_stop()
            with load.working():
                sleep(SECONDS)
            ground.conn.execute("select queues.remove_schedule('tick')")
            stopped = [worker.wait() for worker in old]
            _retry_what_could_not_be_stored(ground.conn)
            ground.quiesce(120)
            conn, lines = ground.conn, witness.lines()
            cases = [*told.cases, *load.take_cases()]
            broken = mixed_rules.check(conn, cases, lines) + _fired_twice(conn)
            assert not broken, "\n".join(broken[:20])
            check_only(conn, witness, ground.fleet, told)
            assert (stopped, _is_like_a_fresh_one(database)) == ([0, 0], True)
        finally:
            ground.fleet.close()
    tasks = len({line.task_id for line in lines})
    tell(
        f"{tasks} tasks, of {len(cases)} cases and {len(told.acknowledged)} single ones, of version 1 "
        f"and of now; upgraded in {took:.2f} s ({tries} tries)"
    )
    assert {case.kind for case in cases} == mixed_rules.RULES.keys()


def _retry_what_could_not_be_stored(conn: Connection) -> None:
    """As the page on upgrades says: workers of version 1 take a passing error for one of the result."""
    conn.execute(
        """select queues.retry(o.task_id, 'it ended while the schema was upgraded') from queues.outcome o
           where o.status = 'failed' and exists (
             select from queues.error e where e.task_id = o.task_id and e.kind = 'result_not_storable')"""
    )


def _migrate_until_done(dsn: str) -> int:
    """As an operator: run it again as long as its error asks for that. Returns how often it tried."""
    lines: list[str] = []
    while True:
        try:
            done = migrate(dsn, echo=lines.append)
        except TransactionConflict:
            continue
        assert (done.action, done.from_version, done.to_version) == ("upgrade", 1, SCHEMA_VERSION)
        return 1 + sum("trying again" in line for line in lines)


def _fired_twice(conn: Connection) -> list[str]:
    """Times of the schedule that have no task of their own, or one that has not succeeded once."""
    query = """
        select f.nominal_at, count(o.status) from queues.schedule_firing f
        left join queues.outcome o on o.task_id = f.task_id and o.status = 'succeeded'
        where f.schedule = 'tick' and f.decision = 'fired' group by 1 having count(o.status) <> 1"""
    fired = engine.value(conn, "select count(*) from queues.schedule_firing where decision = 'fired'")
    broken = [
        f"the tick at {row['nominal_at']} ended {row['count']} times" for row in engine.rows(conn, query)
    ]
    return broken if fired else ["the schedule never fired"]


def _is_like_a_fresh_one(database: Database) -> bool:
    """Whether each object of its schema has the same properties as in a new database."""
    conn = database.connect()
    conn.execute("create database fresh")
    fresh = Database(database.server, "fresh")
    migrate(fresh.dsn)
    try:
        return fingerprint(conn) == fingerprint(fresh.connect())
    finally:
        fresh.close()
