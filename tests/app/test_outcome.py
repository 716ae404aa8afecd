from datetime import timedelta
from typing import Any

import pytest

from holdfast import Cancel, Fail, Snooze


@pytest.mark.parametrize(
    ("given", "seconds"), [(30, 30.0), (0, 0.0), (1.5, 1.5), (timedelta(minutes=2), 120.0)]
)
def test_a_snooze_is_as_long_as_its_seconds_or_its_timedelta(given: Any, seconds: float) -> None:
    assert Snooze(given).seconds == seconds
    assert Snooze(given).delay == timedelta(seconds=seconds)


@pytest.mark.parametrize("given", [-1, float("nan"), float("inf"), timedelta(seconds=-1), "30", None, True])
def test_a_snooze_that_is_no_length_of_time_is_refused(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="Snooze takes"):
        Snooze(given)


@pytest.mark.parametrize("kind", [Cancel, Fail])
@pytest.mark.parametrize("given", ["", "  ", None, 3])
def test_an_ending_without_a_reason_is_refused(kind: Any, given: Any) -> None:
    with pytest.raises(TypeError, match="takes a reason"):
        kind(given)


def test_outcomes_are_values() -> None:
    assert Cancel("late") == Cancel("late") != Cancel("early")
    assert {Fail("no"), Fail("no")} == {Fail("no")}
