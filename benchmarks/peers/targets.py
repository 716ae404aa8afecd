"""What Holdfast has to reach, and where it wants to get. Ratios are those of a round, by the median."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.peers.catalog import PEERS, PYTHON_PEERS
from benchmarks.peers.results import Results

EVERY_PEER = tuple(peer.name for peer in PEERS)
LEAST_MS = 0.01  # a handler can start before its enqueue has returned


@dataclass(frozen=True)
class Bar:
    """A limit in words, and what was measured against it."""

    words: str
    value: float | None
    limit: float
    at_least: bool = True

    @property
    def holds(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def verdict(self) -> str:
        return {True: "holds", False: "MISSED", None: "not measured"}[self.holds]


@dataclass(frozen=True)
class Target:
    what: str
    must: Bar
    goal: Bar


def evaluate(results: Results) -> list[Target]:
    return [
        _rate(results, "drain, one process", "drain_1", 2.0),
        _rate(results, "drain, two processes", "drain_2", 1.3),
        Target(
            "enqueue one by one",
            Bar("≥ the best peer", _against(results, "enqueue_one.per_second", EVERY_PEER), 1.0),
            Bar("≥ 0.9 x a plain insert", _against(results, "enqueue_one.per_second", ["floor"]), 0.9),
        ),
        _limits("100 concurrent aenqueue", "x one by one", _concurrent(results), 5.0, 20.0),
        Target(
            "bulk enqueue",
            Bar("≥ the best peer", _against(results, "enqueue_many.per_second", EVERY_PEER), 1.0),
            Bar(
                "≥ 0.7 x unnest into a plain table",
                _against(results, "enqueue_many.per_second", ["floor"]),
                0.7,
            ),
        ),
        _latency(results, "p50"),
        _latency(results, "p99"),
        _limits(
            "worker RSS, 1,000 in flight",
            "MB",
            _median(results, "in_flight.resident_mb"),
            80,
            60,
            at_least=False,
        ),
        _limits("WAL per task, enqueue + run", "B", _log(results), 1400, 1100, at_least=False),
        _limits("with 1,000,000 finished tasks", "x", _median(results, "finished.ratio"), 0.9, 0.98),
        _limits("held snapshot, last fifth to first", "x", _median(results, "snapshot.ratio"), 0.7, 0.9),
    ]


def _rate(results: Results, what: str, measure: str, factor: float) -> Target:
    figure = f"{measure}.per_second"
    return Target(
        what,
        Bar(f"≥ {factor:g} x pgqueuer", _against(results, figure, ["pgqueuer"]), factor),
        Bar("≥ graphile-worker", _against(results, figure, ["graphile-worker"]), 1.0),
    )


def _latency(results: Results, name: str) -> Target:
    figure = f"latency.{name}"
    return Target(
        f"commit → handler start, {name}",
        Bar(
            "below every Python peer", _against(results, figure, PYTHON_PEERS, best=min), 1.0, at_least=False
        ),
        Bar(
            "at most graphile-worker",
            _against(results, figure, ["graphile-worker"], best=min),
            1.0,
            at_least=False,
        ),
    )


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
        met = [values[number] for values in theirs if number in values]
        if met:
            ratios.append(max(ours, LEAST_MS) / max(best(met), LEAST_MS))
    return statistics.median(ratios) if ratios else None


def _concurrent(results: Results) -> float | None:
    one = results.by_round("holdfast", "enqueue_one.per_second")
    many = results.by_round("holdfast", "concurrent.per_second")
    ratios = [many[number] / one[number] for number in many if number in one]
    return statistics.median(ratios) if ratios else None


def _log(results: Results) -> float | None:
    enqueued, run = (_median(results, f"{measure}.wal_bytes") for measure in ("enqueue_one", "drain_1"))
    return None if enqueued is None or run is None else enqueued + run


def _median(results: Results, figure: str) -> float | None:
    return results.median("holdfast", figure)
