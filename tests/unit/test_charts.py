"""Charts: round axes, one place per step, gaps where nothing is known."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast._engine.activity import TypeActivity
from holdfast._words.units import span
from holdfast.server.pages.charts import Chart, Series, chart
from holdfast.server.pages.render import count, rate

NOW = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def point(minutes_ago: int, succeeded: int, mean_run: float | None = None) -> TypeActivity:
    at = NOW.replace(second=0) - minutes_ago * MINUTE
    return TypeActivity(at, 60.0, succeeded, 0, 0, 0, None, mean_run, None, None)


def draw(points: list[TypeActivity], unit: str = "tasks", minutes: int = 10) -> Chart:
    shows = {"tasks": count, "per second": rate, "seconds": span}
    values = {"seconds": lambda one: one.mean_run}
    series: list[Series[TypeActivity]] = [Series("ended", values.get(unit, lambda one: one.succeeded))]
    since = timedelta(minutes=minutes)
    return chart("Ended", unit, points, series, show=shows[unit], since=since, step=MINUTE, now=NOW)


def test_a_step_without_a_point_is_a_gap() -> None:
    drawn = draw([point(0, 1), point(1, 1), point(4, 1), point(5, 1)])
    assert drawn.lines[0].path.count("M") == 2
    assert [bool(step.values) for step in drawn.steps[-6:]] == [True, True, False, False, True, True]


def test_points_outside_the_window_are_left_out() -> None:
    drawn = draw([point(30, 900), point(1, 5)])
    assert drawn.marks[-1][1] != "900"
    assert len(drawn.steps) == 10


@pytest.mark.parametrize(
    ("highest", "labels"),
    [
        (0, ["0", "1"]),
        (3, ["0", "1", "2", "3"]),
        (7, ["0", "2", "4", "6", "8"]),
        (950, ["0", "500", "1\u202f000"]),
    ],
)
def test_the_axis_of_tasks_has_round_whole_numbers(highest: int, labels: list[str]) -> None:
    drawn = draw([point(1, highest)])
    assert [label for _, label in drawn.marks] == labels
    assert (drawn.marks[0][0], drawn.marks[-1][0]) == (100, 0)


@pytest.mark.parametrize(
    ("longest", "top"),
    [(0.003, "3 ms"), (0.9, "1.0 s"), (50, "1 min"), (700, "15 min"), (90_000, "1 d 12 h")],
)
def test_the_axis_of_durations_has_round_times(longest: float, top: str) -> None:
    assert draw([point(1, 1, longest)], "seconds").marks[-1][1] == top


@pytest.mark.parametrize(
    ("minutes", "shown"),
    [
        (10, ["11:52", "11:54", "11:56", "11:58", "12:00"]),
        (60, ["11:10", "11:20", "11:30", "11:40", "11:50", "12:00"]),
        (1440, ["18:00", "00:00", "06:00", "12:00"]),
    ],
)
def test_the_marks_of_time_are_at_round_times(minutes: int, shown: list[str]) -> None:
    times = draw([point(1, 1)], minutes=minutes).times
    assert [f"{at:%H:%M}" for _, at in times] == shown
    assert all(0 < left < 100 for left, _ in times)
