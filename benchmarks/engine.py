"""`make bench`: the engine against its floor, as ratios from one run. Exits with 1 if a target is missed."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import calls, heartbeat, scenarios
from benchmarks.contract import Contract
from benchmarks.documents import document
from benchmarks.floor import Floor
from benchmarks.measure import Timing, drain_in_turns, drain_slice, in_turns, ratio
from benchmarks.waiting import waiting
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import migrate

Connection = psycopg.Connection[tuple[Any, ...]]
SMALL = {"invoice_id": 1234567, "note": "sixty bytes of payload, or so"}
LARGE = document(1000, 0)
FILL = 1000
SIZES = {"100 B": 100, "1 KB": 1_000, "10 KB": 10_000, "100 KB": 100_000}
BYTES = 10_000_000
"""The maximum number of tasks in one batch."""
BACKLOG = 10_000_000
BACKLOGS = (1_000, 10_000, 100_000, 1_000_000, BACKLOG)
TURNS = 15


@dataclass(frozen=True)
class Ratio:
    """What was measured, what it must be, and what we want it to be."""

    part: str
    what: str
    value: float
    must: float
    goal: float | None = None
    at_least: bool = True

    def reaches(self, limit: float) -> bool:
        return self.value >= limit if self.at_least else self.value <= limit


@dataclass
class Bench:
    server: EmbeddedServer
    scale: float
    longest: int = BACKLOG
    part: str = ""
    missed: int = 0
    ratios: list[Ratio] = field(default_factory=list)
    points: list[dict[str, float]] = field(default_factory=list)
    """What a claim and a finish take, by the length of the backlog."""

    def tasks(self, count: int) -> int:
        return max(4000, int(count * self.scale) // 2000 * 2000)

    def report(
        self, what: str, value: float, must: float, goal: float | None = None, *, at_least: bool = True
    ) -> None:
        ratio = Ratio(self.part, what, value, must, goal, at_least)
        self.ratios.append(ratio)
        met = ratio.reaches(must)
        self.missed += not met
        sign, verdict = (">=" if at_least else "<="), ("met" if met else "MISSED")
        line = f"  {what:<66}{value:>6.2f}   must be {sign} {must:.2f}: {verdict}"
        if goal is not None:
            line += f"   goal {goal:.2f}: {'met' if ratio.reaches(goal) else 'MISSED'}"
        print(line, flush=True)

    @contextmanager
    def database(
        self, name: str, prepare: Callable[[Connection], None] = scenarios.nothing
    ) -> Iterator[Connection]:
        with psycopg.connect(self.server.url("postgres"), autocommit=True) as admin:
            admin.execute(f'drop database if exists "{name}" with (force)')
            admin.execute(f'create database "{name}"')
        migrate(self.server.url(name))
        with psycopg.connect(self.server.url(name), autocommit=True) as connection:
            prepare(connection)
            yield connection


def fill(side: Floor | Contract, payload: dict[str, Any], count: int) -> None:
    for _ in range(0, count, FILL):
        side.enqueue_many(payload, FILL)
    side.settle()


def say(timing: Timing, name: str) -> None:
    print(
        f"    {name:<10}{timing.per_second:>9,.0f}/s   claim {timing.micros(timing.claim_seconds):>5.1f} us"
        f"   finish {timing.micros(timing.finish_seconds):>5.1f} us   WAL {timing.wal_per_task:>6,.0f} B",
        flush=True,
    )


def claim_and_finish(bench: Bench) -> None:
    count = bench.tasks(100_000)
    print(f"Claim and finish {count:,} tasks, batches of 200, one connection")
    for label, payload, target in (("60-byte payload", SMALL, 0.7), ("1 KB payload", LARGE, 1.0)):
        with (
            bench.database("bench_drain") as connection,
            psycopg.connect(connection.info.dsn, autocommit=True) as claiming,
        ):
            floor, ours = Floor(connection), Contract(claiming, worker=True)
            fill(floor, payload, count)
            fill(ours, payload, count)
            connection.execute("checkpoint")
            timings = drain_in_turns(floor, ours, count, slices=20)
            bench.report(f"{label}, claimed and finished", ratio(*(t.slices for t in timings)), target)
            for timing, name in zip(timings, (floor.name, ours.name), strict=True):
                say(timing, name)


def fixed_costs(bench: Bench) -> None:
    print("What a call costs the server: microseconds of CPU, one connection")
    with bench.database("bench_calls") as connection:
        side = Contract(connection, cursor=True, worker=True)
        fill(side, SMALL, -(-calls.tasks() // FILL) * FILL)
        for line in calls.measure(side).lines():
            print(f"    {line}", flush=True)


def against_a_clean_one(
    bench: Bench, prepare: Callable[[Connection], None], count: int
) -> tuple[Timing, Timing]:
    """So many tasks in a clean database and in a prepared one, in turns."""
    with bench.database("bench_clean") as clean, bench.database("bench_prepared", prepare) as prepared:
        one, other = Contract(clean), Contract(prepared)
        for side in (one, other):
            fill(side, SMALL, count)
            side.connection.execute("checkpoint")
        return drain_in_turns(one, other, count, slices=20)


def undisturbed(bench: Bench) -> None:
    count = bench.tasks(60_000)
    print(f"Claim and finish {count:,} tasks in a database that holds more, against a clean one")
    for label, prepare in (
        ("1,000,000 finished tasks", scenarios.a_million_finished),
        ("1,000,000 tasks for tomorrow at a higher priority", scenarios.a_million_for_tomorrow),
        ("200 other queues with 1,000 tasks each", scenarios.two_hundred_other_queues),
    ):
        timings = against_a_clean_one(bench, prepare, count)
        bench.report(label, ratio(*(t.slices for t in timings)), 0.9)


def limited(bench: Bench) -> None:
    count = bench.tasks(60_000)
    print(f"Claim and finish {count:,} tasks where limits are set, against none")
    for label, prepare, target in (
        ("a limit on another queue", scenarios.another_queue_limited, 0.9),
        ("1,000 at once of the queue", scenarios.at_most_a_thousand_at_once, 0.8),
        ("a rate of the queue that is never reached", scenarios.a_rate_never_reached, 0.8),
    ):
        timings = against_a_clean_one(bench, prepare, count)
        bench.report(label, ratio(*(t.slices for t in timings)), target, 0.98 if target == 0.9 else None)
        for timing, name in zip(timings, ("no limit", "limited"), strict=True):
            say(timing, name)


def held_snapshot(bench: Bench) -> None:
    count = bench.tasks(300_000)
    print(f"Claim and finish {count:,} tasks while another session holds an old snapshot")
    for batch, tasks in ((200, count), (20, count // 5)):
        with bench.database("bench_snapshot") as connection, psycopg.connect(connection.info.dsn) as reader:
            side = Contract(connection, cursor=True)
            fill(side, SMALL, tasks)
            reader.execute("set transaction isolation level repeatable read")
            reader.execute("select count(*) from queues.lane")
            timing = Timing()
            for _ in range(5):
                drain_slice(side, tasks // 5, timing, batch=batch)
            label = f"{tasks:,} tasks in batches of {batch}: last fifth against the first"
            bench.report(label, timing.slices[0] / timing.slices[-1], 0.7)
            reader.rollback()


def enqueue(bench: Bench) -> None:
    print("Enqueue, against an insert into the floor's table")
    for label, size in SIZES.items():
        payload, batch = document(size, 0), min(FILL, BYTES // size)
        with bench.database("bench_enqueue") as connection:
            sides = (Floor(connection), Contract(connection))
            floor, ours = (partial(side.enqueue_many, payload, batch) for side in sides)
            in_turns(floor, ours, 3)
            many = in_turns(floor, ours, max(3, int(80 * bench.scale)))
            bench.report(f"{label}, enqueued in batches of {batch:,}", ratio(*many), 0.6, 0.7)
            floor, ours = (partial(side.enqueue, payload) for side in sides)
            in_turns(floor, ours, 20)
            one = in_turns(floor, ours, max(100, int(2000 * bench.scale)))
            bench.report(f"{label}, enqueued one by one", ratio(*one), 0.7, 0.75)


def backlog(bench: Bench) -> None:
    """Against a backlog of a thousand, in turns. What a turn takes is put back before the next."""
    sizes = [size for size in BACKLOGS if size <= bench.longest] or [BACKLOGS[0]]
    print(f"Claim and finish with up to {sizes[-1]:,} tasks waiting, against 1,000")
    with bench.database("bench_backlog") as small, bench.database("bench_long") as large:
        sides = Contract(small), Contract(large)
        scenarios.a_backlog(small, 1_000)
        sides[0].settle()
        for size in sizes:
            scenarios.a_backlog(large, size)
            sides[1].settle()
            large.execute("checkpoint")
            one, other = Timing(), Timing()
            for _ in range(TURNS):
                for side, timing in zip(sides, (one, other), strict=True):
                    drain_slice(side, 1_000, timing)
                    side.enqueue_many(SMALL, 1_000)
            value = 1 / ratio(one.slices, other.slices)
            bench.report(f"{size:,} waiting, to 1,000", value, 1.3, 1.1, at_least=False)
            bench.points.append(
                {
                    "tasks": size,
                    "claim_micros": other.micros(other.claim_seconds),
                    "finish_micros": other.micros(other.finish_seconds),
                    "against_1000": value,
                }
            )
            for timing, name in ((one, "1,000"), (other, f"{size:,}")):
                say(timing, name)


def heartbeats(bench: Bench) -> None:
    print("Renew 1,000 leases")
    with bench.database("bench_heartbeat") as connection:
        found = heartbeat.beats(connection.info.dsn, 1_000, 10)
    bench.report("part of the updates that are HOT", sum(beat.hot for beat in found) / len(found), 0.9, 0.9)


PARTS = {
    "drain": claim_and_finish,
    "calls": fixed_costs,
    "undisturbed": undisturbed,
    "limits": limited,
    "waiting": waiting,
    "backlog": backlog,
    "heartbeat": heartbeats,
    "snapshot": held_snapshot,
    "enqueue": enqueue,
}


def run(bench: Bench, parts: Iterable[str]) -> None:
    for part in parts:
        bench.part = part
        PARTS[part](bench)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", choices=[*PARTS, []], help="which parts; all of them unless given"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="how many tasks, as a part of the full run")
    parser.add_argument("--pg", type=int, default=18, help="version of PostgreSQL")
    given = parser.parse_args()
    durable = {
        "shared_buffers": "1GB",
        "max_wal_size": "8GB",
        "checkpoint_timeout": "15min",
        "autovacuum_naptime": "5s",
    }
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # for the account of the server to pass
        server = EmbeddedServer(Path(home), version=given.pg, settings=durable)
        server.start()
        try:
            bench = Bench(server, given.scale, int(BACKLOG * given.scale))
            run(bench, given.parts or PARTS)
        finally:
            server.stop()
    print("All targets are met." if not bench.missed else f"{bench.missed} targets were missed.")
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
