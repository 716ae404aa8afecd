"""Those who emit, those who send, and the one who receives: each writes down what it did."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from time import sleep
from uuid import UUID

from acceptance.fleet import HOLDFAST
from acceptance.trial import chance
from acceptance.waiting import wait_for
from holdfast._engine import Engine
from holdfast._engine.events import emit
from support.database import Database
from support.engine import Connection
from support.receiver import OK, Answer, Receiver, Request, receiving

Told = tuple[str, int]
"""An aggregate, and the number of the event in it."""


@dataclass
class Writers:
    """Transactions that change a row of the application's own, emit, dawdle, and commit or not."""

    database: Database
    writers: int
    aggregates: int
    committed: dict[UUID, Told] = field(default_factory=dict)
    rolled_back: set[UUID] = field(default_factory=set)

    def write(self, events: int) -> None:
        conn = self.database.connect()
        conn.execute("create table account (name text primary key, changes integer not null)")
        conn.execute("grant select, update on account to public")
        conn.execute(
            "insert into account select 'a' || n, 0 from generate_series(1, %s) n", [self.aggregates]
        )
        shares = [events // self.writers + (n < events % self.writers) for n in range(self.writers)]
        sessions = [self.database.connect("holdfast_client", autocommit=False) for _ in shares]
        with ThreadPoolExecutor(self.writers) as threads:
            list(threads.map(self._work, range(self.writers), sessions, shares))

    def _work(self, number: int, conn: Connection, share: int) -> None:
        delays = chance(f"writer {number}")
        left = share
        while left:
            name = f"a{delays.randint(1, self.aggregates)}"
            change = "update account set changes = changes + 1 where name = %s returning changes"
            row = conn.execute(change, [name]).fetchone()
            assert row
            event_id = Engine(conn).run(emit("account.changed", {"n": row[0]}, name))
            sleep(delays.choice([0, 0, 0.001, 0.005, 0.05]))
            if delays.random() < 0.2:
                conn.rollback()
                self.rolled_back.add(event_id)
            else:
                conn.commit()
                self.committed[event_id] = (name, row[0])
                left -= 1


@dataclass
class Ear:
    """A receiver that fails a share of its calls, in a thread of its own."""

    fails: float = 0.2
    url: str = ""
    heard: list[tuple[UUID, Told, bool]] = field(default_factory=list)
    """Every arrival in order, and whether it was taken."""
    _chance: Random = field(default_factory=lambda: chance("receiver"))

    async def answer(self, request: Request) -> Answer:
        taken = self._chance.random() >= self.fails
        event = request.event
        assert request.headers["webhook-id"] == event["id"]
        self.heard.append((UUID(event["id"]), (event["partitionkey"], event["data"]["n"]), taken))
        return OK if taken else (500, {}, b"")

    @contextmanager
    def listening(self) -> Iterator["Ear"]:
        def serve() -> None:
            asyncio.run(self._serve(ready, ended))

        ready, ended = threading.Event(), threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    async def _serve(self, ready: threading.Event, ended: threading.Event) -> None:
        async with receiving(self.answer) as receiver:
            self._receiver: Receiver = receiver
            self.url = receiver.url
            ready.set()
            await asyncio.to_thread(ended.wait)

    def taken(self) -> set[UUID]:
        return {event_id for event_id, _, taken in self.heard if taken}


class Dispatchers:
    """`holdfast dispatch` as processes, of which some are killed."""

    def __init__(self, url: str, directory: Path, lease: float) -> None:
        self._directory = directory
        self._environment = os.environ | {
            "HOLDFAST_OUTBOX_ALLOW": "127.0.0.1",
            "DATABASE_URL": url,
            "HOLDFAST_LEASE": str(lease),
            "HOLDFAST_HEARTBEAT": str(lease / 4),
            "POLL_INTERVAL": "0.2",
            "HOLDFAST_LOG_FORMAT": "json",
            "HOLDFAST_LOG_LEVEL": "info",
        }
        self._numbers = count(1)
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.kills = 0

    def launch(self) -> None:
        log = self._directory / f"dispatch-{next(self._numbers)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [HOLDFAST, "dispatch"], env=self._environment, stdout=output, stderr=output
            )
        self._running.append((process, log))

    @property
    def pids(self) -> list[int]:
        return [process.pid for process, _ in self._running]

    def ready(self) -> bool:
        """Whether all that run have begun to send."""
        return all("dispatcher_started" in log.read_text() for _, log in self._running)

    def kill_the_older(self) -> None:
        victim, _ = self._running.pop(0)
        assert victim.poll() is None, "it ended by itself"
        victim.kill()
        victim.wait()
        self.kills += 1

    def close(self) -> None:
        for process, _ in self._running:
            process.kill()
            process.wait()


def wait_until_delivered(database: Database, seconds: float) -> None:
    conn = database.connect()

    def none_left() -> bool:
        row = conn.execute("select not exists (select from queues.delivery)").fetchone()
        return bool(row and row[0])

    wait_for("all events to be delivered", none_left, seconds)
