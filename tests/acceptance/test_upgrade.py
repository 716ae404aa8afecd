"""The schema is upgraded to a next release while clients enqueue and workers claim and finish."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from uuid import UUID

import psycopg
import pytest

from acceptance.fleet import Fleet
from acceptance.ground import VERSION, Ground
from acceptance.producer import Producer
from acceptance.trial import sized, tell, trial
from acceptance.witness import Witness
from holdfast.errors import HoldfastError, TryAgain, translate
from holdfast.postgres import EmbeddedServer
from holdfast.schema import SCHEMA_VERSION, migrate
from support import engine
from support.database import Database
from support.invariant import assert_invariant
from support.releases import Release
from support.server import disposable_home

SECONDS = sized(1, 2, 10)


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
                if not isinstance(told, TryAgain):
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
def this_release() -> Iterator[Database]:
    with disposable_home(VERSION) as home:
        server = EmbeddedServer(home, VERSION)
        migrate(server.start())
        database = Database(server, "holdfast")
        try:
            yield database
        finally:
            database.close()


@pytest.mark.full
@trial("P1", "P3", quick=True)
@pytest.mark.timeout(300)
def test_nothing_is_lost_or_refused_while_the_schema_is_upgraded(tmp_path: Path) -> None:
    with this_release() as database:
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
