import pytest
from benchmarks.workflow_measures import Stepped
from benchmarks.workflows import Figures, targets


def test_steps_are_timed_from_one_start_to_the_next() -> None:
    stepped = Stepped([[0, 1_000_000, 3_000_000], [0, 2_000_000, 4_000_000]], wal_bytes=0)
    assert stepped.milliseconds == 2.0
    assert stepped.per_second == pytest.approx(1250)


def test_a_ratio_of_steps_is_taken_within_a_round() -> None:
    figures = Figures({"holdfast, steps/s": [9000.0, 4000.0, 8000.0], "dbos, steps/s": [300.0, 400.0, 200.0]})
    assert targets(figures, 1)["the same, against DBOS"].value == 30
    assert targets(figures, 1)["the same, against DBOS"].verdict == "met"
    assert targets(figures, 1)["the same, against absurd"].verdict == "not measured"
