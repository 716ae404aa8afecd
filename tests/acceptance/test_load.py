"""What others do on the same server: a snapshot that is held for minutes, listeners that want to be woken."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import pytest
from psycopg.conninfo import conninfo_to_dict

from acceptance.ground import VERSION, Ground
from acceptance.trial import sized, tell, trial
from holdfast._install.postgres.installation import binaries
from support import engine
from support.engine import Connection

WORKERS = {"WORKER_CONCURRENCY": 20}
PER_SECOND = sized(60, 60, 200)
LISTENERS, CLIENTS = 50, 16

_DELAY = """
    select percentile_cont(0.99) within group (order by date_part('epoch', o.claimed_at - t.run_at))
    from queues.outcome o join queues.task t using (task_id)
    where t.created_at > queues.clock() - make_interval(secs => %s)"""
_SCRIPT = """select queues.enqueue('acceptance.work', '{"label": "bench", "seconds": [0]}');\n"""


@dataclass
class Pace:
    per_second: float
    delay: float


def watch(ground: Ground, seconds: float) -> Pace:
    before, began = len(ground.witness.lines("ended")), monotonic()
    sleep(seconds)
    took = monotonic() - began
    ended = len(ground.witness.lines("ended")) - before
    return Pace(ended / took, engine.value(ground.conn, _DELAY, [seconds]))


@contextmanager
def held_snapshot(ground: Ground) -> Iterator[None]:
    """Whatever dies from now on cannot be cleaned away."""
    holder = ground.database.connect(autocommit=False)
    holder.execute("set transaction isolation level repeatable read")
    holder.execute("select count(*) from queues.task")
    yield
    holder.rollback()


@trial("P5", everyday=False)
@pytest.mark.timeout(600)
def test_a_snapshot_that_is_held_does_not_slow_the_work(ground: Ground) -> None:
    producer = ground.producer(per_second=PER_SECOND, seconds=(0.0, 0.005, 0.01))
    ground.fleet.start(2, WORKERS)
    with producer.producing():
        sleep(3)
        before = watch(ground, sized(3, 10, 20))
        with held_snapshot(ground):
            held = watch(ground, sized(3, 10, 60))
        after = watch(ground, sized(3, 10, 20))
    ground.quiesce()
    ground.check(producer)
    clean = (before.per_second + after.per_second) / 2
    tell(
        f"{held.per_second:.0f} tasks a second while a snapshot was held, {before.per_second:.0f} before and "
        f"{after.per_second:.0f} after; from due to claimed in {held.delay * 1000:.0f} ms (99 %), "
        f"{before.delay * 1000:.0f} ms before, {after.delay * 1000:.0f} ms after"
    )
    assert held.per_second >= 0.6 * clean, "what the machine does besides cannot explain that"


@dataclass
class Enqueued:
    tasks: int
    per_second: float


class Bench:
    """pgbench, whose clients enqueue one task after another, each in a transaction of its own."""

    def __init__(self, ground: Ground, directory: Path) -> None:
        script = directory / "enqueue.sql"
        script.write_text(_SCRIPT)
        address = conninfo_to_dict(ground.database.dsn)
        connection = ["-h", str(address["host"]), "-p", str(address["port"]), "-U", "postgres", "holdfast"]
        options = ["-n", "-c", str(CLIENTS), "-j", "2", "-f", str(script)]
        self._command = [str(binaries(VERSION) / "pgbench"), *options]
        self._connection = connection

    def run(self, seconds: int) -> Enqueued:
        command = [*self._command, "-T", str(seconds), *self._connection]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        tasks = re.search(r"actually processed: (\d+)", printed)
        rate = re.search(r"^tps = ([\d.]+)", printed, re.MULTILINE)
        assert tasks, printed
        assert rate, printed
        return Enqueued(int(tasks[1]), float(rate[1]))


@trial("P9", everyday=False)
@pytest.mark.timeout(300)
def test_many_idle_workers_do_not_slow_those_who_enqueue(ground: Ground, tmp_path: Path) -> None:
    """One worker runs what comes; the others are idle, or are not. In turn: both meet the same machine."""
    admin, bench = ground.conn, Bench(ground, tmp_path)
    listeners = [_listener(ground, f"listener-{n}") for n in range(LISTENERS)]
    ground.fleet.start(1, {"WORKER_CONCURRENCY": 100})
    seconds, rounds = sized((1, 1), (1, 1), (3, 4))
    rates: dict[bool, list[Enqueued]] = {True: [], False: []}
    bench.run(seconds)
    for _ in range(rounds):
        for idle in (False, True):
            admin.execute("update queues.worker set idle = %s where worker_id like 'listener-%%'", [idle])
            rates[idle].append(bench.run(seconds))
            for listener in listeners:
                listener.execute("select")  # takes in what it was sent
    quiet, loud = (sum(each.per_second for each in rates[idle]) / rounds for idle in (False, True))
    tell(
        f"{CLIENTS} clients enqueued {loud:.0f} tasks a second with {LISTENERS} more workers that were idle, "
        f"{quiet:.0f} with none: {loud / quiet:.2f}"
    )
    assert loud >= 0.5 * quiet, "what the machine does besides cannot explain that"


def _listener(ground: Ground, name: str) -> Connection:
    conn = ground.database.connect("holdfast_worker")
    engine.call(conn, "queues.register_worker", {"worker_id": name, "queues": ["acceptance"]})
    conn.execute("listen holdfast")
    return conn
