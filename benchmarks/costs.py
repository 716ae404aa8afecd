"""`python -m benchmarks.costs`: where the log and the CPU time of an enqueue, a claim and a finish go.

The log is read record by record with pg_waldump. The CPU time of a bulk enqueue is split by leaving out
parts: each variant has its own connection, and Linux counts what its server process computes.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import floor
from benchmarks.documents import documents
from benchmarks.peers import processes
from benchmarks.peers.cluster import Cluster, Connection
from benchmarks.records import Row, by_record
from holdfast import App
from holdfast._install.schema import migrate
from holdfast._telemetry.logs import configure

Figures = dict[str, Any]
TEMPLATE, DATABASE = "template_costs", "bench_costs"
TASKS, BATCH = 10_000, 200
SINGLES = 2_000
SIZES = {60: 40, 1_000: 20, 10_000: 6, 100_000: 6}
"""Bytes of a payload, and how many batches."""
BATCH_BYTES = 10_000_000
PARTS = ("parse", "task", "ready", "check", "rest")

MANY = "select * from queues.enqueue_many(%s, %b::text[])"
ONE = "select queues.enqueue('bench.noop', %s)"
CLAIM = "select task_id::text, token from queues.claim('w1', %s, array['bench'])"
FINISH = "select * from queues.finish('w1', %s)"
TYPE = json.dumps([{"type": "bench.noop"}])
PARSE = "select count(p) from (select unnest(%b::text[])::jsonb as p offset 0) parsed"
TASK = """
insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor,
  enqueued_by, namespace, payload)
select ((select left(queues.new_task_id()::text, 30)) || right(to_hex(16777216 + p.n), 6))::uuid, now(),
  now(), 0, 3, 'bench.noop', 'bench', 'python', 'bench', 'bench', p.written::jsonb
from (select unnest(%b::text[]) as written, generate_series(1, %s) as n) p
"""
BOTH = f"""
with made as ({TASK} returning task_id)
insert into queues.ready (task_id, run_at, lane_id, attempt) select task_id, now(), 1, 0 from made
"""
UNCHECKED = """
create or replace function queues.is_simple_payload(written text, payload jsonb, max_bytes bigint)
returns boolean language sql stable parallel safe as 'select true'
"""


def measure(cluster: Cluster) -> Figures:
    migrate(cluster.create(TEMPLATE))
    return {"server": cluster.server.version, "log": list(log(cluster)), "cpu": list(cpu(cluster))}


def log(cluster: Cluster) -> Iterator[Row]:
    """Bytes of log per task, by what was done, record and table."""
    cluster.create(DATABASE, TEMPLATE)
    with cluster.connect(DATABASE) as connection:
        # The first write to a page after a checkpoint logs all of it: not what a task costs.
        for step in (_enqueue_many, _enqueue_one, _claim, _finish):
            step(connection, BATCH)
        for what, step, count in (
            ("enqueue one by one", _enqueue_one, SINGLES),
            ("enqueue in bulk", _enqueue_many, TASKS),
            ("claim", _claim, TASKS),
            ("finish with a result", _finish, TASKS),
        ):
            begin = _flushed(connection)
            step(connection, count)
            end = _flushed(connection)
            yield from by_record(cluster.server, connection, what, (begin, end), count)
    cluster.drop(DATABASE)


def _enqueue_one(connection: Connection, count: int) -> None:
    for seq in range(count):
        connection.execute(ONE, (json.dumps({"seq": seq}),))


def _enqueue_many(connection: Connection, count: int) -> None:
    for first in range(0, count, 1000):
        payloads = [json.dumps({"seq": seq}) for seq in range(first, min(first + 1000, count))]
        connection.execute(MANY, (TYPE, payloads))


def _claim(connection: Connection, count: int) -> None:
    """Keep what was claimed for the finish, in a table of the session that writes no log."""
    connection.execute("create temporary table if not exists claimed (task_id text, token bigint)")
    for _ in range(0, count, BATCH):
        connection.execute(f"insert into claimed {CLAIM}", (BATCH,))


def _finish(connection: Connection, count: int) -> None:
    held = connection.execute("delete from claimed returning task_id, token").fetchall()
    assert len(held) == count, f"{len(held)} of {count} tasks were claimed"
    done = {"status": "succeeded", "result": {"seq": 1, "done": True}}
    results = [{"task_id": task_id, "token": token} | done for task_id, token in held]
    for first in range(0, count, BATCH):
        connection.execute(FINISH, (json.dumps(results[first : first + BATCH]),))


def _flushed(connection: Connection) -> str:
    """The end of the log, on the disk: the commit of a claim does not wait for it, that of a message does."""
    connection.execute("select pg_logical_emit_message(true, 'bench', '')")
    row = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


@dataclass
class Variant:
    """One way to send the payloads, what this process computed for it, and the server process behind it."""

    call: Callable[[Sequence[Any]], Any]
    server: int | None = None
    seconds: float = 0.0
    before: float = 0.0

    def run(self, payloads: Sequence[Any]) -> None:
        started = time.process_time()
        self.call(payloads)
        self.seconds += time.process_time() - started

    def begin(self) -> None:
        self.seconds, self.before = 0.0, self._of_the_server()

    def cpu(self) -> tuple[float, float]:
        return self.seconds, self._of_the_server() - self.before

    def _of_the_server(self) -> float:
        return processes.cpu_seconds([self.server]) if self.server else 0.0


def cpu(cluster: Cluster) -> Iterator[dict[str, float]]:
    """Microseconds of CPU per task of a bulk enqueue and of its parts, by the size of the payload."""
    with ExitStack() as stack:
        variants = _variants(cluster, stack)
        for size, batches in SIZES.items():
            batch = min(1000, BATCH_BYTES // size)
            _in_turns(list(variants.values()), _payloads(size, batch), batches)
            tasks = batches * batch / 1e6
            used = {name: [part / tasks for part in each.cpu()] for name, each in variants.items()}
            yield {"bytes": size, "batch": batch, **split(used)}


def _in_turns(variants: list[Variant], payloads: list[dict[str, Any]], batches: int) -> None:
    for variant in variants:
        variant.run(payloads)
        variant.begin()
    for number in range(batches):
        for variant in variants if number % 2 == 0 else reversed(variants):
            variant.run(payloads)


def split(used: dict[str, list[float]]) -> dict[str, float]:
    """A part is the difference of two variants; measured apart, a small one can come out below zero."""
    server = {name: server for name, (_, server) in used.items()}
    return {
        "floor_client": used["floor"][0],
        "floor_server": server["floor"],
        "client": used["api"][0],
        "server": server["ours"],
        "parse": server["parse"],
        "task": server["task"] - server["parse"],
        "ready": server["both"] - server["task"],
        "check": server["ours"] - server["unchecked"],
        "rest": server["unchecked"] - server["both"],
    }


def _payloads(size: int, batch: int) -> list[dict[str, Any]]:
    if size < 100:
        return [{"invoice_id": 1234567, "note": "sixty bytes of payload, so"}] * batch
    found = documents(size)
    return [found[number % len(found)] for number in range(batch)]


def _variants(cluster: Cluster, stack: ExitStack) -> dict[str, Variant]:
    def database(name: str) -> str:
        stack.callback(cluster.drop, f"{DATABASE}_{name}")
        return cluster.create(f"{DATABASE}_{name}", TEMPLATE)

    def variant(name: str, statement: str, arguments: Callable[[list[str]], tuple[Any, ...]]) -> Variant:
        connection = stack.enter_context(psycopg.connect(database(name), autocommit=True))
        if name == "floor":
            floor.Floor(connection)
        elif name == "unchecked":
            connection.execute(UNCHECKED)

        def call(payloads: Sequence[Any]) -> None:
            connection.execute(statement, arguments([json.dumps(each) for each in payloads]))

        return Variant(call, connection.info.backend_pid)

    return {
        "floor": variant("floor", floor.ENQUEUE_MANY, lambda texts: (texts,)),
        "parse": variant("parse", PARSE, lambda texts: (texts,)),
        "task": variant("task", TASK, lambda texts: (texts, len(texts))),
        "both": variant("both", BOTH, lambda texts: (texts, len(texts))),
        "unchecked": variant("unchecked", MANY, lambda texts: (TYPE, texts)),
        "ours": variant("ours", MANY, lambda texts: (TYPE, texts)),
        "api": _of_the_api(database("api"), stack),
    }


def _of_the_api(url: str, stack: ExitStack) -> Variant:
    app = App(url)
    stack.callback(app.close)

    @app.task("bench.noop")
    async def noop(**document: Any) -> None: ...

    return Variant(noop.enqueue_many)


def lines(found: Figures) -> Iterator[str]:
    """As Markdown, which can also be read in a terminal."""
    yield (
        f"The log, record by record (`pg_waldump`, PostgreSQL {found['server']}), per task with a payload of "
        f"about 12 bytes. Bulk enqueues have batches of 1,000, claims and finishes of {BATCH}."
    )
    yield from ("", "|  | record | table or index | records | bytes |", "|---|---|---|---|---|")
    for row in found["log"]:
        counts = f"{row['records']:.2f} | {row['bytes']:.0f}"
        yield f"| {row['what']} | {row['record']} | {row['relation']} | {counts} |"
    yield ""
    yield (
        "The CPU of a bulk enqueue: microseconds per task, of the caller's process and of the server process "
        "of its connection. The five columns at the right add up to the server's part of Holdfast. Each but "
        "the first is the difference of two calls, one without that part: receive and parse the JSON; write "
        "the row of the task and its index; write the row in `ready` and its indexes; check the payload; and "
        "the rest, which is the functions around, the lane and the ids that go back. Near 0 it is noise."
    )
    names = ("floor_client", "floor_server", "client", "server", *PARTS)
    heads = ("floor, caller", "floor, server", "Holdfast, caller", "Holdfast, server", *PARTS)
    yield from ("", f"| bytes | batch | {' | '.join(heads)} |", "|---" * (len(names) + 2) + "|")
    for point in found["cpu"]:
        cells = " | ".join(f"{point[name]:,.1f}" for name in names)
        yield f"| {point['bytes']:,} | {point['batch']:,} | {cells} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pg", type=int, default=18, help="version of PostgreSQL")
    given = parser.parse_args()
    configure("console", "warning")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # for the account of the server to pass
        with Cluster(Path(home) / "postgres", given.pg).running() as cluster:
            print("\n".join(lines(measure(cluster))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
