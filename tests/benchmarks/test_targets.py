import pytest
from benchmarks.peers.results import Record, Results
from benchmarks.peers.targets import Target, evaluate


def _results(**figures: list[dict[str, float]]) -> Results:
    """Of one measure, by contender: the values of each round."""
    return Results(
        [
            Record(number, contender.replace("_", "-"), measure, values)
            for contender, rounds in figures.items()
            for number, given in enumerate(rounds, start=1)
            for measure, values in _by_measure(given).items()
        ]
    )


def _by_measure(given: dict[str, float]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for figure, value in given.items():
        measure, _, name = figure.partition(".")
        found.setdefault(measure, {})[name] = value
    return found


def _target(results: Results, what: str) -> Target:
    [found] = [target for target in evaluate(results) if target.what == what]
    return found


def test_a_ratio_is_taken_within_a_round_and_the_median_counts() -> None:
    rates = [{"drain_1.per_second": rate} for rate in (30_000.0, 10_000.0, 20_000.0)]
    slow = [{"drain_1.per_second": rate} for rate in (10_000.0, 10_000.0, 8_000.0)]
    target = _target(_results(holdfast=rates, pgqueuer=slow), "drain, one process")
    assert target.must.value == pytest.approx(2.5)
    assert target.must.verdict == "holds"


def test_what_was_not_measured_is_neither_held_nor_missed() -> None:
    target = _target(_results(holdfast=[{"drain_1.per_second": 9.0}]), "drain, one process")
    assert target.must.holds is None
    assert target.must.verdict == "not measured"


def test_latency_is_held_against_the_fastest_python_peer() -> None:
    results = _results(
        holdfast=[{"latency.p50": 2.0}],
        chancy=[{"latency.p50": 1.9}],
        pgqueuer=[{"latency.p50": 3.0}],
        graphile_worker=[{"latency.p50": 2.5}],
    )
    target = _target(results, "commit → handler start, p50")
    assert target.must.verdict == "MISSED"
    assert target.goal.verdict == "holds"


def test_a_handler_that_starts_before_its_enqueue_returns_is_no_division_by_zero() -> None:
    results = _results(holdfast=[{"latency.p50": -0.1}], pgqueuer=[{"latency.p50": 0.0}])
    assert _target(results, "commit → handler start, p50").must.value == 1.0


def test_the_log_of_a_task_is_that_of_its_enqueue_and_of_its_run() -> None:
    results = _results(holdfast=[{"enqueue_one.wal_bytes": 700.0, "drain_1.wal_bytes": 600.0}])
    target = _target(results, "WAL per task, enqueue + run")
    assert target.must.value == 1300.0
    assert (target.must.verdict, target.goal.verdict) == ("holds", "MISSED")
