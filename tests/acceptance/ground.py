"""A durable server, its workers, and the witness of what they did."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg.conninfo import make_conninfo

from acceptance.checker import Verdict, check
from acceptance.fleet import Fleet
from acceptance.producer import Producer
from acceptance.waiting import wait_for
from acceptance.witness import Line, Witness
from holdfast._engine import Engine, enqueue
from holdfast._engine.enqueue import NewTask
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import migrate
from support import engine
from support.database import Database
from support.engine import Connection
from support.server import disposable_home

VERSION = int(os.environ.get("HOLDFAST_TEST_PG", "18"))

NOISE_SECONDS = 5.0
"""What a machine that others use too may add to a bound that is part of the promise."""

# Durable, as in production. The lazy writer lets a crash take what no client waited for: claims, heartbeats.
_SETTINGS = {"shared_buffers": "128MB", "wal_writer_delay": "10s"}


DISK = Path("/tmp")  # noqa: S108 - directories of their own are made in it


@dataclass
class Ground:
    server: EmbeddedServer
    database: Database
    witness: Witness
    fleet: Fleet

    @property
    def conn(self) -> Connection:
        """A new session of the superuser, because a test may have ended all older ones."""
        return self.database.connect()

    def through(self, port: int, role: str) -> str:
        """The address for a login with this role by way of a proxy."""
        address = self.database.dsn_as(role)
        return make_conninfo(address, host="127.0.0.1", port=port, sslmode="disable")

    def producer(
        self, *, per_second: float, seconds: Sequence[float], through: int | None = None
    ) -> Producer:
        role = "holdfast_client"
        url = self.through(through, role) if through else self.database.dsn_as(role)
        return Producer(url, per_second=per_second, seconds=seconds, started=self.witness.count_starts)

    def enqueue(self, task_type: str, label: str, max_attempts: int = 20, **payload: Any) -> UUID:
        task = NewTask(f"acceptance.{task_type}", {"label": label, **payload}, max_attempts=max_attempts)
        return Engine(self.conn).run(enqueue.enqueue(task))

    def gate(self, name: str) -> Path:
        """For a handler to wait at, until the test makes it."""
        return self.witness.path.with_name(f"{name}.gate")

    def wait_for_start(self, task_id: UUID, attempt: int = 1) -> Line:
        def seen() -> list[Line]:
            return [line for line in self.witness.starts()[task_id] if line.attempt >= attempt]

        return wait_for(f"attempt {attempt} of {task_id}", seen)[0]

    def wait_for_end(self, *task_ids: UUID) -> None:
        conn = self.conn
        ended = "select count(*) = %s from queues.outcome where task_id = any(%s)"
        wait_for("tasks to end", lambda: engine.value(conn, ended, [len(task_ids), list(task_ids)]))

    def is_ready(self, task_id: UUID) -> bool:
        """Whether it waits for a worker."""
        return bool(engine.rows(self.conn, "select from queues.ready where task_id = %s", [task_id]))

    def quiesce(self, seconds: float = 90) -> None:
        wait_until_quiet(self.conn, seconds)

    def check(self, *producers: Producer) -> Verdict:
        return check(self.conn, self.witness, self.fleet, *producers)


def wait_until_quiet(conn: Connection, seconds: float = 90) -> None:
    """Until nothing waits and nothing runs. The fleet does it without help."""
    rest = "select (select count(*) from queues.ready) + (select count(*) from queues.lease)"
    try:
        wait_for("the queue to become empty", lambda: engine.value(conn, rest) == 0, seconds)
    except AssertionError as error:
        left = """select s.task_id, s.type, s.status, e.code, e.facts, e.error
            from queues.task_status s, queues.explain(s.task_id) e where s.finished_at is null limit 20"""
        error.add_note("\n".join(str(list(row.values())) for row in engine.rows(conn, left)))
        raise


@contextmanager
def durable_ground(
    directory: Path, version: int, disk: Path = DISK, settings: Mapping[str, str] | None = None
) -> Iterator[Ground]:
    with disposable_home(version, disk) as home:
        server = EmbeddedServer(home, version, _SETTINGS | dict(settings or {}))
        migrate(server.start())
        database = Database(server, "holdfast")
        witness = Witness(directory / "witness")
        fleet = Fleet(database.dsn_as("holdfast_worker"), witness, directory)
        try:
            yield Ground(server, database, witness, fleet)
        finally:
            fleet.close()
            database.close()
