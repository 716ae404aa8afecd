"""`make bench-isolation`: what a process of its own costs a task. Exits with 1 if a target is missed."""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.isolated_tasks import app, here, isolated, limited
from holdfast import Task
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import migrate

LEAST_PER_SECOND = 500.0
MAX_MILLISECONDS = 5.0
PATIENCE_SECONDS = 120.0

Connection = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def worker(url: str, concurrency: int) -> Iterator[None]:
    """One `holdfast worker`, whose children are warm."""
    options = ["--queues", "bench", "--concurrency", str(concurrency), "--log-level", "warning"]
    environment = os.environ | {"DATABASE_URL": url, "HOLDFAST_PROCESS_POOL": str(concurrency)}
    holdfast = str(Path(sys.executable).with_name("holdfast"))
    command = [holdfast, "worker", "benchmarks.isolated_tasks:app", *options]
    with subprocess.Popen(command, env=environment) as process:
        try:
            # More than there are children, so that each of them has run.
            drain(url, isolated, concurrency * 10)
            yield
        finally:
            process.terminate()
            process.wait(60)


def drain(url: str, task: Task[..., Any], count: int) -> float:
    """Tasks a second, from the first that was started until the last has ended."""
    task.enqueue_many([()] * count)
    give_up = time.monotonic() + PATIENCE_SECONDS
    with psycopg.connect(url, autocommit=True) as connection:
        while waiting(connection):
            assert time.monotonic() < give_up, "the worker does not work"
            time.sleep(0.02)
        seconds = connection.execute(
            "select extract(epoch from max(finished_at) - min(started_at)), count(*) from ("
            " select * from queues.task_status where type = %s order by task_id desc limit %s) last"
            " where status = 'succeeded'",
            [task.type, count],
        ).fetchone()
    assert seconds is not None
    assert seconds[1] == count, "a task has not succeeded"
    return count / float(seconds[0])


def waiting(connection: Connection) -> bool:
    row = connection.execute(
        "select coalesce(sum(due + running), 0) from queues.queue_status where queue = 'bench'"
    ).fetchone()
    assert row is not None
    return bool(row[0])


def latencies(url: str, tasks: Sequence[Task[..., Any]], rounds: int) -> list[float]:
    """Milliseconds from enqueue to end by the database's clock, one task at a time, in turns: medians."""
    found: dict[str, list[float]] = {task.type: [] for task in tasks}
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(rounds):
            for task in tasks:
                handle = task.enqueue()
                handle.result(timeout=30)
                row = connection.execute(
                    "select extract(epoch from finished_at - created_at) * 1000"
                    " from queues.task_status where task_id = %s",
                    [handle.task_id],
                ).fetchone()
                assert row is not None
                found[task.type].append(float(row[0]))
    return [statistics.median(found[task.type]) for task in tasks]


def measure(url: str, count: int, rounds: int, concurrency: int) -> int:
    tasks: list[Task[..., Any]] = [here, isolated, limited]
    with app.at(url), worker(url, concurrency):
        speeds = {task.type: drain(url, task, count) for task in tasks}
        times = latencies(url, tasks, rounds)
    for task, milliseconds in zip(tasks, times, strict=True):
        print(
            f"  {task.type:<16}{speeds[task.type]:>9,.0f}/s   enqueue to end {milliseconds:>7.2f} ms",
            flush=True,
        )
    slow = report(
        "no-ops a second in a process of their own", speeds["bench.isolated"], ">=", LEAST_PER_SECOND
    )
    late = report(
        "milliseconds more than in process, at the median", times[1] - times[0], "<=", MAX_MILLISECONDS
    )
    return int(slow or late)


def report(what: str, value: float, sign: str, target: float) -> bool:
    missed = value < target if sign == ">=" else value > target
    print(
        f"  {what:<56}{value:>9.2f}   must be {sign} {target:.0f}   {'MISSED' if missed else 'holds'}",
        flush=True,
    )
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="no-ops to drain")
    parser.add_argument("--rounds", type=int, default=200, help="single tasks to time")
    parser.add_argument("--concurrency", type=int, default=4, help="tasks at once")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # for the account of the server to pass
        server = EmbeddedServer(Path(home))
        server.start()
        try:
            migrate(server.url("postgres"))
            return measure(server.url("postgres"), given.count, given.rounds, given.concurrency)
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
