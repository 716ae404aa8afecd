"""queues.next_check: when a supervisor looks again."""

from datetime import timedelta

import pytest

from support.clock import Clock
from support.engine import Connection, value


def _check(
    tx: Connection, clock: Clock, not_before: float | None, expected_by: float | None, **more: str
) -> float:
    """In seconds from now."""
    given = [None if seconds is None else clock.after(seconds) for seconds in (not_before, expected_by)]
    extra = "".join(f", {name} => '{text}'" for name, text in more.items())
    found = value(tx, f"select queues.next_check(%s::timestamptz, %s::timestamptz{extra})", given)
    waits: timedelta = found - clock.now
    return waits.total_seconds()


@pytest.mark.parametrize(
    ("not_before", "expected_by", "waits"),
    [
        pytest.param(86400, None, 86400, id="it sleeps until the time it waits for"),
        pytest.param(86400, 90000, 86400, id="whatever it expects after that"),
        pytest.param(1, 1, 1, id="also if that is soon"),
        pytest.param(None, 86400, 43200, id="half of a day"),
        pytest.param(-60, 3600, 1800, id="a time that has passed is not waited for"),
        pytest.param(None, 20, 10, id="half of what remains"),
        pytest.param(None, 7, 5, id="never less than the minimum"),
        pytest.param(None, 0, 5, id="when news is due"),
        pytest.param(None, -8, 5, id="when news is late"),
        pytest.param(None, -100, 50, id="and less often the later it is"),
        pytest.param(None, None, 5, id="without any expectation, the minimum"),
    ],
)
def test_the_next_check(
    tx: Connection, clock: Clock, not_before: float | None, expected_by: float | None, waits: float
) -> None:
    assert _check(tx, clock, not_before, expected_by) == waits


def test_the_minimum_may_be_another(tx: Connection, clock: Clock) -> None:
    assert _check(tx, clock, None, 60, minimum="2 minutes") == 120


def test_a_day_long_wait_is_looked_at_a_few_times_and_more_often_towards_its_end(
    tx: Connection, clock: Clock
) -> None:
    until, looks = clock.after(86400), []
    while clock.now < until:
        wait = _check(tx, clock, None, (until - clock.now).total_seconds())
        looks.append(wait)
        clock.advance(wait)

    assert looks[:3] == [43200, 21600, 10800]
    assert looks == sorted(looks, reverse=True)
    assert len(looks) == 16
