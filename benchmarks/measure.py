"""Two sides measured in turns, slice by slice, so that what else the machine does hits both."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import psycopg

BATCH = 200


class Side(Protocol):
    name: str
    connection: psycopg.Connection[tuple[Any, ...]]

    def claim(self, size: int) -> list[tuple[Any, ...]]: ...
    def finish(self, claimed: list[tuple[Any, ...]]) -> None: ...


@dataclass
class Timing:
    """What one side took: seconds per slice, split by call, and the log it wrote."""

    tasks: int = 0
    claim_seconds: list[float] = field(default_factory=list)
    finish_seconds: list[float] = field(default_factory=list)
    wal_bytes: int = 0

    @property
    def slices(self) -> list[float]:
        return [c + f for c, f in zip(self.claim_seconds, self.finish_seconds, strict=True)]

    @property
    def per_second(self) -> float:
        return self.tasks / sum(self.slices)

    @property
    def wal_per_task(self) -> float:
        return self.wal_bytes / self.tasks

    def micros(self, seconds: list[float]) -> float:
        return sum(seconds) / self.tasks * 1e6


def wal_position(connection: psycopg.Connection[tuple[Any, ...]]) -> int:
    row = connection.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchone()
    assert row is not None
    return int(row[0])


def drain_slice(side: Side, tasks: int, timing: Timing, *, batch: int = BATCH) -> None:
    """Claim and finish this many tasks in batches."""
    claiming = finishing = 0.0
    start_of_log = wal_position(side.connection)
    done = 0
    while done < tasks:
        started = time.perf_counter()
        claimed = side.claim(batch)
        between = time.perf_counter()
        assert claimed, f"{side.name} ran out of tasks"
        side.finish(claimed)
        claiming += between - started
        finishing += time.perf_counter() - between
        done += len(claimed)
    timing.tasks += done
    timing.claim_seconds.append(claiming)
    timing.finish_seconds.append(finishing)
    timing.wal_bytes += wal_position(side.connection) - start_of_log


def drain_in_turns(one: Side, other: Side, tasks: int, slices: int) -> tuple[Timing, Timing]:
    timings = (Timing(), Timing())
    for number in range(slices):
        pair = list(zip((one, other), timings, strict=True))
        for side, timing in pair if number % 2 == 0 else reversed(pair):
            drain_slice(side, tasks // slices // BATCH * BATCH, timing)
    return timings


def in_turns(
    one: Callable[[], None], other: Callable[[], None], rounds: int
) -> tuple[list[float], list[float]]:
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        pair = list(zip((one, other), seconds, strict=True))
        for call, taken in pair if number % 2 == 0 else reversed(pair):
            started = time.perf_counter()
            call()
            taken.append(time.perf_counter() - started)
    return seconds


def ratio(floor: list[float], ours: list[float]) -> float:
    """How fast ours is against the other: the median over pairs of neighbouring slices."""
    return statistics.median(f / o for f, o in zip(floor, ours, strict=True))
