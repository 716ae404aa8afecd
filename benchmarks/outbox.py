"""`make bench-outbox`: events per second of one dispatcher with the file sink. Exits with 1 if too few."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import migrate
from holdfast._telemetry.logs import configure
from holdfast.outbox.dispatcher import Dispatcher
from holdfast.settings import Settings

TARGET = 1000
AGGREGATES = 500
EMIT = (
    "select queues.emit('bench.happened', '{{\"note\": \"sixty bytes of payload, or so\"}}', 'a' || n %% {})"
    " from generate_series(1, %s) n"
)


async def measure(url: str, directory: Path, events: int) -> tuple[float, float]:
    """Events a second, emitted and delivered: the dispatcher starts when all are there."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select queues.subscribe('bench', 'file', 'events.jsonl', array['*'])")
        began = time.perf_counter()
        for _ in range(0, events, 1000):
            connection.execute(EMIT.format(AGGREGATES).encode(), (min(1000, events),))
        emitted = events / (time.perf_counter() - began)
        dispatcher = Dispatcher(url, Settings.load(outbox_directory=directory))
        began = time.perf_counter()
        running = asyncio.create_task(dispatcher.run())
        await _until(lambda: _left(connection) == 0)
        delivered = events / (time.perf_counter() - began)
        dispatcher.stop()
        await running
    lines = (directory / "events.jsonl").read_bytes().count(b"\n")
    assert lines == events, f"{lines} lines of {events} events"
    return emitted, delivered


def _left(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("select count(*) from queues.delivery").fetchone()
    assert row
    return int(row[0])


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is in the database
        await asyncio.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000, help="how many events")
    parser.add_argument("--pg", type=int, default=18, help="version of PostgreSQL")
    given = parser.parse_args()
    configure("console", "warning")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # for the account of the server to pass
        server = EmbeddedServer(Path(home) / "server", version=given.pg, settings={"shared_buffers": "256MB"})
        url = server.start()
        try:
            migrate(url)
            emitted, delivered = asyncio.run(measure(url, Path(home), given.events))
        finally:
            server.stop()
    holds = delivered >= TARGET
    print(f"{given.events:,} events over {AGGREGATES} aggregates, one dispatcher, file sink with fsync")
    print(f"  emitted    {emitted:>8,.0f}/s")
    print(f"  delivered  {delivered:>8,.0f}/s   must be >= {TARGET:,}   {'holds' if holds else 'MISSED'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
