"""What queues.health says of schedules that are late or do not fire."""

import pytest

from support import schedules
from support.clock import Clock
from support.engine import Connection, call
from support.health import checks, level, line


@pytest.mark.parametrize(("late", "expected"), [(5, None), (29, "green"), (30, "amber"), (300, "red")])
def test_a_schedule_that_is_late(tx: Connection, clock: Clock, late: float, expected: str | None) -> None:
    schedules.add(tx)
    schedules.plan(tx, schedules.at(13))
    clock.advance(3600 + late)

    if expected is None:
        assert "late_schedule" not in checks(tx)
    else:
        assert level(tx, "late_schedule", "nightly") == expected


def test_a_schedule_that_nobody_plans(tx: Connection, clock: Clock) -> None:
    schedules.add(tx)
    clock.advance(300)

    assert level(tx, "late_schedule", "nightly") == "red"


def test_schedules_that_do_not_fire(tx: Connection, clock: Clock) -> None:
    for name in ("a", "b", "c"):
        schedules.add(tx, name)
    schedules.plan(tx, "infinity", "a", problem="no such zone")
    call(tx, "queues.pause_schedule", {"name": "b", "reason": "holidays"})
    schedules.declare(tx, schedules.element("d"))
    schedules.declare(tx)

    assert level(tx, "broken_schedule", "a") == "red"
    assert line(tx, "broken_schedule")["error"] == "no such zone"
    assert "holidays" in line(tx, "paused_schedule", "b")["message"]
    assert level(tx, "orphaned_schedule", "d") == "amber"
