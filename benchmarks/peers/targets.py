"""What Holdfast has to reach, and where it wants to get. Ratios are those of a round, by the median."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.catalog import DRIVERS, PEERS, PYTHON_PEERS
from benchmarks.peers.measures import FLEETS
from benchmarks.peers.results import Results

EVERY_PEER = tuple(peer.name for peer in PEERS)
DOCUMENTS = {"1 KB": 1_000, "10 KB": 10_000, "100 KB": 100_000}
ENGINE = {
    "backlog": "claim + finish",
    "waiting": "claim",
    "limits": "claim + finish under a limit",
    "heartbeat": "heartbeat of 1,000 leases",
}
LEAST_MS = 0.01  # a handler can start before its enqueue has returned


@dataclass(frozen=True)
class Bar:
    """A limit in words, and what was measured against it."""

    words: str
    value: float | None
    limit: float
    at_least: bool = True

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def verdict(self) -> str:
        return {True: "met", False: "MISSED", None: "not measured"}[self.met]


@dataclass(frozen=True)
class Target:
    what: str
    must: Bar
    goal: Bar


def evaluate(
    results: Results, engine: Sequence[Mapping[str, Any]] = (), idle: float | None = None
) -> list[Target]:
    """`engine` are the ratios of `make bench`, `idle` the transactions per second of 100 idle workers."""
    return [
        Target(
            "bulk enqueue, task.enqueue_many",
            _rate(results, "enqueue_many", EVERY_PEER, "the best peer", 1.1),
            _rate(results, "enqueue_many", ["floor"], "unnest into a plain table", 0.7),
        ),
        *(_documents(results, label, size) for label, size in DOCUMENTS.items()),
        Target(
            "enqueue one by one",
            _rate(results, "enqueue_one", EVERY_PEER, "the best peer", 1.05),
            _rate(results, "enqueue_one", ["floor"], "a plain insert", 0.75),
        ),
        *(_with_driver(results, driver) for driver in DRIVERS),
        _limits("100 concurrent aenqueue", "x one by one", _concurrent(results), 5.0, 20.0),
        _drain(results, "drain, one process", "drain_1", 1.0, 1.3),
        _drain(results, "drain, two processes", "drain_2", 1.1, 1.4),
        *(_drain(results, f"drain, {number} processes", f"fleet_{number}", 1.0, 1.0) for number in FLEETS),
        _limits(
            "server CPU per task, 64 processes to 4",
            "x",
            _growth(results, "fleet_64.postgres_micros", "fleet_4.postgres_micros"),
            1.6,
            1.3,
            at_least=False,
        ),
        Target(
            "commit → handler start, p50",
            _latency(results, "p50", ["graphile-worker"], "graphile-worker", 1.1),
            _latency(results, "p50", ["graphile-worker"], "graphile-worker", 1.0),
        ),
        Target(
            "commit → handler start, p99",
            _latency(results, "p99", PYTHON_PEERS, "the best Python peer", 1.0),
            _latency(results, "p99", ["graphile-worker"], "graphile-worker", 1.0),
        ),
        _limits(
            "worker RSS, 1,000 in flight",
            "MB",
            results.median("holdfast", "in_flight.resident_mb"),
            65,
            60,
            at_least=False,
        ),
        _limits(
            "WAL per task with result",
            "B",
            _log(results),
            1200,
            1000,
            at_least=False,
        ),
        *_of_the_engine(engine),
        _limits("100 idle workers", "transactions/s", idle, 40, 25, at_least=False),
    ]


def _documents(results: Results, label: str, size: int) -> Target:
    value = _against(results, f"documents.bytes_{size}", ["floor"])
    return _limits(f"bulk enqueue, {label} of JSON", "x the floor", value, 0.95, 1.2)


def _with_driver(results: Results, driver: str) -> Target:
    value = _against(results, f"enqueue_by_driver.{driver}_per_second", ["pgqueuer"])
    return _limits(f"enqueue one by one, both with {driver}", "x pgqueuer", value, 1.05, 1.2)


def _rate(results: Results, measure: str, others: Sequence[str], words: str, factor: float) -> Bar:
    return Bar(f"≥ {factor:g} x {words}", _against(results, f"{measure}.per_second", others), factor)


def _drain(results: Results, what: str, measure: str, must: float, goal: float) -> Target:
    bars = (
        _rate(results, measure, ["graphile-worker"], "graphile-worker", factor) for factor in (must, goal)
    )
    return Target(what, *bars)


def _latency(results: Results, name: str, others: Sequence[str], words: str, factor: float) -> Bar:
    value = _against(results, f"latency.{name}", others, best=min)
    return Bar(f"≤ {factor:g} x {words}", value, factor, at_least=False)


def _of_the_engine(ratios: Sequence[Mapping[str, Any]]) -> Iterator[Target]:
    """Those that are targets. Of the backlogs, the longest."""
    for part, title in ENGINE.items():
        found = [each for each in ratios if each["part"] == part]
        for each in found[-1:] if part == "backlog" else found:
            goal = each["must"] if each["goal"] is None else each["goal"]
            value, at_least = each["value"], each["at_least"]
            yield _limits(f"{title}: {each['what']}", "x", value, each["must"], goal, at_least=at_least)


def _limits(
    what: str, unit: str, value: float | None, must: float, goal: float, *, at_least: bool = True
) -> Target:
    sign = "≥" if at_least else "≤"
    return Target(
        what,
        Bar(f"{sign} {must:,g} {unit}", value, must, at_least),
        Bar(f"{sign} {goal:,g} {unit}", value, goal, at_least),
    )


def _against(
    results: Results, figure: str, others: Iterable[str], best: Callable[[Iterable[float]], float] = max
) -> float | None:
    """Ours as a multiple of the best of the others in the same round."""
    theirs = [results.by_round(other, figure) for other in others]
    ratios = []
    for number, ours in results.by_round("holdfast", figure).items():
        found = [values[number] for values in theirs if number in values]
        if found:
            ratios.append(max(ours, LEAST_MS) / max(best(found), LEAST_MS))
    return statistics.median(ratios) if ratios else None


def _concurrent(results: Results) -> float | None:
    return _growth(results, "concurrent.per_second", "enqueue_one.per_second")


def _growth(results: Results, much: str, little: str) -> float | None:
    """One figure of ours as a multiple of another one in the same round."""
    most, least = (results.by_round("holdfast", name) for name in (much, little))
    ratios = [most[number] / least[number] for number in most if number in least]
    return statistics.median(ratios) if ratios else None


def _log(results: Results) -> float | None:
    parts = [results.median("holdfast", name) for name in ("enqueue_one.wal_bytes", "wal.run_bytes")]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
