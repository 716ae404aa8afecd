"""Every schedule, in every zone, through every change of its clocks, against a walk through time."""

import os
from datetime import datetime, timedelta

import pytest

from acceptance.trial import FULL, chance, tell, trial
from holdfast._worker.recurrence import Cron
from support.wall_clock import EVERY_HOUR, RULES, ZONES, Rule, changes, walk, walls, year

BEGIN, END = year(2021), year(2026)
# Five years take a zone half a minute: some of them, or all if asked for.
_SOME = chance("zones").sample(sorted(ZONES), 4) if FULL else ["Europe/Berlin"]
WALKED = ZONES if os.environ.get("HOLDFAST_ZONES") == "all" else _SOME
MISSING_DAY = year(2011), year(2012)  # Apia had no 30th of December


def due(rule: Rule, zone: str, begin: datetime, end: datetime) -> list[datetime]:
    cron, found, moment = Cron(rule.cron, zone), list[datetime](), begin
    while (following := cron.after(moment)) is not None and following < end:
        found.append(following)
        moment = following
    return found


def compare(zone: str, begin: datetime, end: datetime, rules: list[Rule] = RULES) -> int:
    shown = list(walls(zone, begin, end))
    total = 0
    for rule in rules:
        expected, found = walk(rule, shown), due(rule, zone, begin, end)
        missing, double = set(expected) - set(found), set(found) - set(expected)
        assert not missing, f"{rule} in {zone} misses {min(missing)}"
        assert not double, f"{rule} in {zone} is also due at {min(double)}"
        assert found == expected
        total += len(found)
    return total


@trial("P10")
def test_there_are_forty_zones_and_their_clocks_change() -> None:
    through = {zone: len(changes(zone, BEGIN, END)) for zone in ZONES}
    assert len(through) >= 40
    assert sum(through.values()) >= 200
    assert {"UTC", "Asia/Kathmandu", "Asia/Tokyo"} <= {zone for zone, count in through.items() if count == 0}


def around_changes(zone: str, most: int | None = None) -> list[tuple[datetime, datetime]]:
    """A day before and after each; of a zone without any, the first days."""
    found = [(day - timedelta(days=1), day + timedelta(days=2)) for day in changes(zone, BEGIN, END)]
    return found[:most] or [(BEGIN, BEGIN + timedelta(days=2))]


@trial("P10")
def test_none_is_missing_and_none_double() -> None:
    spans = [(zone, *span) for zone in ZONES for span in around_changes(zone, 1)]
    total = sum(compare(zone, begin, end) for zone, begin, end in spans)
    tell(f"{len(RULES)} schedules in {len(ZONES)} zones: {total} times")
    assert total > 10_000


@pytest.mark.full
@trial("P10")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("zone", WALKED)
def test_none_is_missing_and_none_double_in_five_years(zone: str) -> None:
    """Schedules for every hour have a hundred times as many times, so those are walked around the changes."""
    named = [rule for rule in RULES if rule.hours != EVERY_HOUR]
    hourly = [rule for rule in RULES if rule.hours == EVERY_HOUR]
    total = compare(zone, BEGIN, END, named)
    total += sum(compare(zone, begin, end, hourly) for begin, end in around_changes(zone))
    tell(f"{zone}: {len(changes(zone, BEGIN, END))} changes, {total} times")
    assert total > 20_000


@trial("P10")
def test_a_day_that_was_left_out() -> None:
    begin, end = MISSING_DAY[1] - timedelta(days=4), MISSING_DAY[1] + timedelta(days=1)
    assert compare("Pacific/Apia", begin, end) > 0
