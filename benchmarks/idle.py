"""`python -m benchmarks.idle N`: how many transactions per second N idle workers make together.

The workers are real ones. Up to 25 of them share a process, each with its own threads and connections,
because a hundred processes would measure the start of Python. The database counts the transactions
(pg_stat_database).
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from holdfast import App
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import migrate
from holdfast._telemetry.logs import configure
from holdfast._worker.worker import Worker
from holdfast.settings import Settings

MOST = 40.0
PER_PROCESS = 25
SETTLE_SECONDS = 45.0
"""Each worker wakes all the others once when it starts to listen. Sessions that only listen report what they
have counted when they are next asked for a reply, every 30 seconds."""
_TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"


async def idle(url: str, count: int) -> None:
    """Run workers that have nothing to do, until the process is ended."""
    app = App(url)

    @app.task("idle.nothing")
    async def nothing() -> None: ...

    workers = [Worker(app, url, Settings.load(worker_queues="idle")) for _ in range(count)]
    await asyncio.gather(*(worker.run() for worker in workers))


def transactions_per_second(url: str, count: int, seconds: float) -> float:
    """What n idle workers cost, without the cost of the measurement itself."""
    sizes = [min(PER_PROCESS, count - begun) for begun in range(0, count, PER_PROCESS)]
    command = [sys.executable, "-m", "benchmarks.idle", "--serve", url]
    processes = [subprocess.Popen([*command, str(size)]) for size in sizes]
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            while _one(connection, "select count(*) from queues.worker where idle") < count:
                assert all(process.poll() is None for process in processes), "a worker process ended"
                time.sleep(0.5)
        time.sleep(SETTLE_SECONDS)
        began, before = time.monotonic(), _transactions(url)
        time.sleep(seconds)
        after, ended = _transactions(url), time.monotonic()
        return (after - before - 1) / (ended - began)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _transactions(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        return _one(connection, _TRANSACTIONS)


def _one(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row
    return int(row[0])


def measure(count: int, seconds: float, version: int = 18) -> float:
    """The same on a server of its own."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # for the account of the server to pass
        settings = {"max_connections": str(50 + 5 * count), "autovacuum": "off"}
        server = EmbeddedServer(Path(home), version=version, settings=settings)
        url = server.start()
        try:
            migrate(url)
            return transactions_per_second(url, count, seconds)
        finally:
            server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workers", type=int, nargs="?", default=100, help="how many workers")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long to count")
    parser.add_argument("--pg", type=int, default=18, help="version of PostgreSQL")
    parser.add_argument("--serve", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    configure("console", "error")
    if given.serve:
        asyncio.run(idle(given.serve, given.workers))
        return 0
    found = measure(given.workers, given.seconds, given.pg)
    most = MOST * max(1.0, given.workers / 100)
    holds = "holds" if found <= most else "MISSED"
    print(f"{given.workers} idle workers: {found:.1f} transactions/s, at most {most:.0f}: {holds}")
    return 0 if found <= most else 1


if __name__ == "__main__":
    sys.exit(main())
