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
    target = _target(_results(holdfast=rates, graphile_worker=slow), "drain, one process")
    assert target.must.value == pytest.approx(2.5)
    assert target.must.verdict == "met"


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    target = _target(_results(holdfast=[{"drain_1.per_second": 9.0}]), "drain, one process")
    assert target.must.met is None
    assert target.must.verdict == "not measured"


def test_the_99th_percentile_is_compared_with_the_fastest_python_peer() -> None:
    results = _results(
        holdfast=[{"latency.p99": 2.0}],
        chancy=[{"latency.p99": 1.9}],
        pgqueuer=[{"latency.p99": 3.0}],
        graphile_worker=[{"latency.p99": 2.5}],
    )
    target = _target(results, "commit → handler start, p99")
    assert target.must.verdict == "MISSED"
    assert target.goal.verdict == "met"


def test_a_handler_that_starts_before_its_enqueue_returns_is_no_division_by_zero() -> None:
    results = _results(holdfast=[{"latency.p50": -0.1}], graphile_worker=[{"latency.p50": 0.0}])
    assert _target(results, "commit → handler start, p50").must.value == 1.0


def test_an_enqueue_is_compared_with_pgqueuer_over_the_same_driver() -> None:
    results = _results(
        holdfast=[
            {"enqueue_by_driver.asyncpg_per_second": 220.0, "enqueue_by_driver.psycopg_per_second": 90.0}
        ],
        pgqueuer=[
            {"enqueue_by_driver.asyncpg_per_second": 200.0, "enqueue_by_driver.psycopg_per_second": 100.0}
        ],
    )
    assert _target(results, "enqueue one by one, both with asyncpg").must.verdict == "met"
    assert _target(results, "enqueue one by one, both with psycopg").must.verdict == "MISSED"


def test_documents_are_compared_with_the_floor_of_their_size() -> None:
    results = _results(holdfast=[{"documents.bytes_10000": 95.0}], floor=[{"documents.bytes_10000": 100.0}])
    target = _target(results, "bulk enqueue, 10 KB of JSON")
    assert target.must.value == pytest.approx(0.95)
    assert (target.must.verdict, target.goal.verdict) == ("met", "MISSED")


def test_what_a_task_costs_the_server_with_many_workers_is_compared_with_few() -> None:
    results = _results(holdfast=[{"fleet_64.postgres_micros": 34.0, "fleet_4.postgres_micros": 20.0}])
    target = _target(results, "server CPU per task, 64 processes to 4")
    assert target.must.value == pytest.approx(1.7)
    assert target.must.verdict == "MISSED"


def test_of_the_backlogs_only_the_longest_is_a_target() -> None:
    ratio = {"part": "backlog", "must": 1.3, "goal": 1.1, "at_least": False}
    engine = [{**ratio, "what": "1,000 waiting", "value": 2.0}, {**ratio, "what": "10 waiting", "value": 1.2}]
    found = [target for target in evaluate(Results(), engine) if target.what.startswith("claim + finish")]
    assert [target.what for target in found] == ["claim + finish: 10 waiting"]
    assert (found[0].must.verdict, found[0].goal.verdict) == ("met", "MISSED")


def test_idle_workers_are_judged_by_their_transactions() -> None:
    [target] = [each for each in evaluate(Results(), idle=41.0) if each.what == "100 idle workers"]
    assert target.must.verdict == "MISSED"


def test_the_log_of_a_task_is_that_of_its_enqueue_and_of_its_run() -> None:
    results = _results(holdfast=[{"enqueue_one.wal_bytes": 600.0, "wal.run_bytes": 500.0}])
    target = _target(results, "WAL per task with result")
    assert target.must.value == 1100.0
    assert (target.must.verdict, target.goal.verdict) == ("met", "MISSED")
    assert _target(_results(holdfast=[{"wal.run_bytes": 500.0}]), target.what).must.met is None
