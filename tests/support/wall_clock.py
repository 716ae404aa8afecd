"""What a clock on the wall shows, walked through a quarter of an hour at a time.

A second opinion on when a schedule is due that shares nothing with the first: fields are sets of numbers, and
time only goes forward.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
QUARTER = timedelta(minutes=15)
ANY_DAY = frozenset(range(1, 32))
ANY_MONTH = frozenset(range(1, 13))
ANY_WEEKDAY = frozenset(range(7))
EVERY_HOUR = frozenset(range(24))


@dataclass(frozen=True)
class Rule:
    """A cron expression of quarters of an hour, and what it means. Monday is 0."""

    cron: str
    minutes: frozenset[int]
    hours: frozenset[int] = EVERY_HOUR
    days: frozenset[int] = ANY_DAY
    months: frozenset[int] = ANY_MONTH
    weekdays: frozenset[int] = ANY_WEEKDAY

    def __str__(self) -> str:
        return self.cron

    def matches(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.day in self.days
            and wall.month in self.months
            and wall.weekday() in self.weekdays
        )


def rule(cron: str, minutes: set[int], hours: set[int] | None = None, **more: set[int]) -> Rule:
    frozen = {name: frozenset(values) for name, values in more.items()}
    return Rule(cron, frozenset(minutes), EVERY_HOUR if hours is None else frozenset(hours), **frozen)


RULES = [
    rule("*/15 * * * *", {0, 15, 30, 45}),
    rule("0 * * * *", {0}),
    rule("30 * * * *", {30}),
    rule("15,45 * * * mon-fri", {15, 45}, weekdays={0, 1, 2, 3, 4}),
    rule("0 0 * * *", {0}, {0}),
    rule("30 0 * * *", {30}, {0}),
    rule("0 1 * * *", {0}, {1}),
    rule("30 1 * * *", {30}, {1}),
    rule("0 2 * * *", {0}, {2}),
    rule("15 2 * * *", {15}, {2}),
    rule("30 2 * * *", {30}, {2}),
    rule("45 2 * * *", {45}, {2}),
    rule("0 3 * * *", {0}, {3}),
    rule("30 23 * * *", {30}, {23}),
    rule("*/30 2 * * *", {0, 30}, {2}),
    rule("*/15 0-3 * * *", {0, 15, 30, 45}, {0, 1, 2, 3}),
    rule("0 */2 * * *", {0}, set(range(0, 24, 2))),
    rule("30 1-23/3 * * *", {30}, set(range(1, 24, 3))),
    rule("0 9 * * mon-fri", {0}, {9}, weekdays={0, 1, 2, 3, 4}),
    rule("30 2 * * sun", {30}, {2}, weekdays={6}),
    rule("0 2 * 3,10 0", {0}, {2}, months={3, 10}, weekdays={6}),
    rule("30 0 1 * *", {30}, {0}, days={1}),
    rule("0 12 29 2 *", {0}, {12}, days={29}, months={2}),
    rule("15 2 25-31 3,10 *", {15}, {2}, days=set(range(25, 32)), months={3, 10}),
]

# Whole hours, half hours and quarters; changes at midnight, at noon of another day, of half an hour, by a
# decision of last month, and none at all.
ZONES = [
    *("Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Johannesburg", "Africa/Juba"),
    *("America/Asuncion", "America/Caracas", "America/Chicago", "America/Denver", "America/Godthab"),
    *("America/Havana", "America/Los_Angeles", "America/Mexico_City", "America/New_York"),
    *("America/Port-au-Prince", "America/Santiago", "America/Sao_Paulo", "America/Scoresbysund"),
    *("America/St_Johns", "Antarctica/Casey", "Antarctica/Troll", "Asia/Amman", "Asia/Beirut", "Asia/Gaza"),
    *("Asia/Jerusalem", "Asia/Kathmandu", "Asia/Pyongyang", "Asia/Tehran", "Asia/Tokyo", "Atlantic/Azores"),
    *("Australia/Eucla", "Australia/Lord_Howe", "Australia/Sydney", "Europe/Berlin", "Europe/Dublin"),
    *("Europe/Istanbul", "Europe/Volgograd", "Pacific/Apia", "Pacific/Chatham", "Pacific/Norfolk", "UTC"),
]


def walls(zone: str, begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Each step, with what the wall shows then. Where clocks change between quarters, a step is a minute."""
    place, instant = ZoneInfo(zone), begin
    busy = {day for day in changes(zone, begin, end) if _changes_between_quarters(place, day)}
    while instant < end:
        yield instant, instant.astimezone(place).replace(tzinfo=None, fold=0)
        instant += MINUTE if instant.replace(hour=0, minute=0) in busy else QUARTER


def walk(rule: Rule, shown: list[tuple[datetime, datetime]]) -> list[datetime]:
    """When it is due, by walking. Its first step only tells where the wall begins."""
    return list(_every_time(rule, shown) if rule.hours == EVERY_HOUR else _once(rule, shown))


def _every_time(rule: Rule, shown: list[tuple[datetime, datetime]]) -> Iterator[datetime]:
    return (instant for instant, wall in shown[1:] if rule.matches(wall))


def _once(rule: Rule, shown: list[tuple[datetime, datetime]]) -> Iterator[datetime]:
    """Due when the wall reaches a time that it names or passes over it, not when it comes to it again."""
    highest = shown[0][1]
    for instant, wall in shown[1:]:
        reached = False
        while highest < wall:
            highest = min(_next_quarter(highest), wall)
            reached = reached or rule.matches(highest)
        if reached:
            yield instant


def _next_quarter(wall: datetime) -> datetime:
    return wall.replace(minute=wall.minute // 15 * 15) + QUARTER


def changes(zone: str, begin: datetime, end: datetime) -> list[datetime]:
    """The days on which the offset changes."""
    place, found, day = ZoneInfo(zone), list[datetime](), begin
    while day < end:
        if day.astimezone(place).utcoffset() != (day + timedelta(days=1)).astimezone(place).utcoffset():
            found.append(day)
        day += timedelta(days=1)
    return found


def _changes_between_quarters(place: ZoneInfo, day: datetime) -> bool:
    offsets = [(day + n * MINUTE).astimezone(place).utcoffset() for n in range(24 * 60)]
    return any(offsets[n] != offsets[n - 1] for n in range(1, len(offsets)) if n % 15)


def year(number: int) -> datetime:
    return datetime(number, 1, 1, tzinfo=UTC)
