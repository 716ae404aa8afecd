"""The worker's two hot statements by each way to send and read them, taking turns on one backlog.

`python -m benchmarks.drivers`. Each way claims the next batch on one connection while it finishes the last
one on another, on uvloop, as the worker does, and ends with payloads decoded and verdicts read.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import psycopg
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.contract import Contract
from benchmarks.engine import FILL, LARGE, SMALL
from benchmarks.peers import processes
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import migrate

SLICE = 10_000
COLUMNS = """
c.task_id::text, c.token, c.type, c.payload{text}, c.attempt, c.max_attempts, c.executor, c.metadata{text},
date_part('epoch', c.timeout), date_part('epoch', c.lease_until), date_part('epoch', c.run_at), c.lane_id,
date_part('epoch', queues.clock())"""
CLAIM = "queues.claim('w1', $1::integer, array['bench'], lease => interval '5 minutes')"
FINISH = "queues.finish('w1', $1::text::jsonb)"
CLAIM_ROWS = f"select {COLUMNS.format(text='::text')} from {CLAIM} c"
CLAIM_VALUE = (
    f"select coalesce(json_agg(json_build_array({COLUMNS.format(text='')})), '[]')::text from {CLAIM} c"
)
FINISH_ROWS = f"select f.task_id::text, f.verdict from {FINISH} f"
FINISH_VALUE = f"select json_agg(json_build_array(f.task_id, f.verdict))::text from {FINISH} f"

Rows = Sequence[Sequence[Any]]


class Driver(Protocol):
    async def rows(self, sql: str, argument: Any) -> Rows: ...


class Psycopg:
    def __init__(self, connection: psycopg.AsyncConnection[Any], *, binary: bool = False) -> None:
        self.connection = connection
        self.binary = binary

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, *, binary: bool = False) -> AsyncIterator[Driver]:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            yield cls(connection, binary=binary)

    async def rows(self, sql: str, argument: Any) -> Rows:
        async with psycopg.AsyncRawCursor(self.connection) as cursor:
            await cursor.execute(sql.encode(), (argument,), binary=self.binary)
            return await cursor.fetchall()


class Asyncpg:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Driver]:
        connection = await asyncpg.connect(url)
        try:
            yield cls(connection)
        finally:
            await connection.close()

    async def rows(self, sql: str, argument: Any) -> Rows:
        found: Rows = await self.connection.fetch(sql, argument)
        return found


async def claim_rows(driver: Driver, size: int) -> Rows:
    return [(*row[:3], json.loads(row[3]), *row[4:]) for row in await driver.rows(CLAIM_ROWS, size)]


async def claim_value(driver: Driver, size: int) -> Rows:
    [[value]] = await driver.rows(CLAIM_VALUE, size)
    decoded: Rows = json.loads(value)
    return decoded


async def finish_rows(driver: Driver, results: str) -> Rows:
    return await driver.rows(FINISH_ROWS, results)


async def finish_value(driver: Driver, results: str) -> Rows:
    [[value]] = await driver.rows(FINISH_VALUE, results)
    decoded: Rows = json.loads(value)
    return decoded


@dataclass
class Way:
    name: str
    open: Callable[[str], Any]
    claim: Callable[[Driver, int], Any]
    finish: Callable[[Driver, str], Any]
    tasks: int = 0
    client: float = 0.0
    server: float = 0.0
    slices: list[float] = field(default_factory=list)


def ways() -> list[Way]:
    return [
        Way("psycopg, rows", Psycopg.open, claim_rows, finish_rows),
        Way("psycopg, binary rows", lambda url: Psycopg.open(url, binary=True), claim_rows, finish_rows),
        Way("psycopg, one value", Psycopg.open, claim_value, finish_value),
        Way("asyncpg, rows", Asyncpg.open, claim_rows, finish_rows),
        Way("asyncpg, one value", Asyncpg.open, claim_value, finish_value),
    ]


def results_of(batch: Rows) -> str:
    written = (f'{{"task_id":"{row[0]}","token":{row[1]},"status":"succeeded"}}' for row in batch)
    return f"[{','.join(written)}]"


async def work(way: Way, claiming: Driver, finishing: Driver, tasks: int, size: int) -> None:
    """Claim one batch ahead of the one that is being finished."""
    batch, done = await way.claim(claiming, size), 0
    while batch:
        wanted = min(size, tasks - done - len(batch))
        ahead = asyncio.create_task(way.claim(claiming, wanted)) if wanted > 0 else None
        verdicts = await way.finish(finishing, results_of(batch))
        assert all(verdict == "accepted" for _, verdict in verdicts)
        done += len(batch)
        batch = await ahead if ahead else []
    assert done == tasks, f"{way.name} did {done} of {tasks}"


async def take_turns(url: str, postmaster: int, size: int, rounds: int) -> list[Way]:
    everyone = ways()
    for turn in range(rounds):
        shift = turn % len(everyone)
        for way in everyone[shift:] + everyone[:shift]:
            async with way.open(url) as claiming, way.open(url) as finishing:
                await work(way, claiming, finishing, 10 * size, size)  # both drivers prepare after some calls
                server, client, clock = (
                    processes.cpu_seconds([postmaster]),
                    time.process_time(),
                    time.perf_counter(),
                )
                await work(way, claiming, finishing, SLICE, size)
                way.slices.append(time.perf_counter() - clock)
                way.client += time.process_time() - client
                way.server += processes.cpu_seconds([postmaster]) - server
                way.tasks += SLICE
    return everyone


def show(console: Console, title: str, everyone: list[Way]) -> None:
    table = Table("", title=title, title_justify="left")
    for heading in ("tasks/s", "client CPU\nµs per task", "server CPU\nµs per task"):
        table.add_column(heading, justify="right")
    for way in everyone:
        rate = SLICE / sorted(way.slices)[len(way.slices) // 2]
        per_task = (f"{seconds / way.tasks * 1e6:.1f}" for seconds in (way.client, way.server))
        table.add_row(way.name, f"{rate:,.0f}", *per_task)
    console.print(table)


def backlog(server: EmbeddedServer, payload: dict[str, Any], tasks: int) -> str:
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute("drop database if exists drivers with (force)")
        admin.execute("create database drivers")
    url = server.url("drivers")
    migrate(url)
    with psycopg.connect(url, autocommit=True) as connection:
        side = Contract(connection)
        for _ in range(0, tasks, FILL):
            side.enqueue_many(payload, FILL)
        side.settle()
    return url


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--batches", type=int, nargs="*", default=[100, 500])
    given = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # for the account of the server to pass
        server = EmbeddedServer(Path(home), settings={"shared_buffers": "1GB", "max_wal_size": "8GB"})
        server.start()
        postmaster = server.status().pid
        assert postmaster is not None
        try:
            for label, payload in (("60-byte payload", SMALL), ("1 KB payload", LARGE)):
                for size in given.batches:
                    tasks = given.rounds * len(ways()) * (SLICE + 10 * size) + FILL
                    url = backlog(server, payload, tasks)
                    everyone = uvloop.run(take_turns(url, postmaster, size, given.rounds))
                    show(console, f"{label}, batches of {size}", everyone)
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
