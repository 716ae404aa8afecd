"""When a schedule is due: cron expressions in the wall time of a zone, and fixed intervals.

The rules for clocks that are set forward or back, which no library decides the same way:

- A schedule that names hours (`30 2 * * *`) runs once for each time on the wall that it names. A time that is
  skipped counts at the first instant after the gap; one that comes twice counts the first time.
- A schedule for every hour (`*/15 * * * *`) runs whenever the wall shows one of its times, however often.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from holdfast.errors import InvalidArgument

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

FIELDS = 5
HOURS = 24
# No zone changes its offset twice within this time.
STRIDE = timedelta(days=1)
RESOLUTION = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SOME_DAY = datetime(2001, 1, 1)  # noqa: DTZ001 - a time on the wall, in no zone


class Recurrence(Protocol):
    def after(self, moment: datetime) -> datetime | None:
        """The first time later than this, in UTC, or None if there is no more."""


class Cron:
    """A cron expression of five fields, in the wall time of a zone."""

    def __init__(self, expression: str, tz: str = "UTC") -> None:
        self.expression = expression
        self.tz = tz
        self._fields = _fields_of(expression)
        self._zone = zone_of(tz)
        try:
            read = CronSim(self._fields, SOME_DAY)
        except (CronSimError, AssertionError, ValueError) as error:
            raise InvalidArgument(f"cron {expression!r} cannot be read: {_reason(error)}") from None
        self._every_hour = len(read.hours) == HOURS

    def __repr__(self) -> str:
        return f"Cron({self.expression!r}, {self.tz!r})"

    def after(self, moment: datetime) -> datetime | None:
        moment = moment.astimezone(UTC).replace(microsecond=0)
        try:
            return self._as_it_passes(moment) if self._every_hour else self._once_on_the_wall(moment)
        except (OverflowError, ValueError):  # the end of the calendar
            return None

    def _once_on_the_wall(self, moment: datetime) -> datetime | None:
        for wall in self._walls(_wall_of(moment, self._zone)):
            instant = _first_instant(wall, self._zone)
            if instant > moment:
                return instant
        return None

    def _as_it_passes(self, moment: datetime) -> datetime | None:
        """Within a stretch of one offset, the wall goes as fast as time does."""
        begin, wall = moment, _wall_of(moment, self._zone)
        while True:
            offset = _offset(begin, self._zone)
            found = next(self._walls(wall), None)
            if found is None:
                return None
            instant = (found - offset).replace(tzinfo=UTC)
            change = _next_change(begin, instant, self._zone)
            if change is None:
                return instant
            begin, wall = change, _wall_of(change, self._zone) - RESOLUTION

    def _walls(self, wall: datetime) -> Iterator[datetime]:
        return CronSim(self._fields, wall)


class Every:
    """A fixed interval, counted from an anchor whatever happens meanwhile."""

    def __init__(self, every: timedelta, anchor: datetime) -> None:
        if every < timedelta(seconds=1):
            raise InvalidArgument(f"every {every} is too short", hint="Give at least one second.")
        self.every = every
        self.anchor = anchor.astimezone(UTC)

    def __repr__(self) -> str:
        return f"Every({self.every!r}, {self.anchor!r})"

    def after(self, moment: datetime) -> datetime | None:
        passed = (moment.astimezone(UTC) - self.anchor) // self.every
        try:
            return self.anchor + (passed + 1) * self.every
        except OverflowError:
            return None


def recurrence_of(
    cron: str | None, tz: str | None, every: timedelta | None, anchor: datetime | None
) -> Recurrence:
    """Of a schedule, which has a cron expression or an interval."""
    if cron is not None:
        return Cron(cron, tz or "UTC")
    assert every is not None  # noqa: S101 - the table has one of them
    return Every(every, anchor or EPOCH)


def next_times(recurrence: Recurrence, first: datetime | None, count: int) -> list[datetime]:
    """The time that is planned, and those after it."""
    times: list[datetime] = []
    while first is not None and len(times) < count:
        times.append(first)
        first = recurrence.after(first)
    return times


def newest_times(recurrence: Recurrence, first: datetime, now: datetime, most: int) -> list[datetime]:
    """The newest times up to now, in order, at most `most` of them. `first` was planned before and counts.

    After a long silence there may be millions: it looks further back only as long as there are too few.
    """
    span = timedelta(minutes=1)
    while True:
        begin = max(first, now - span)
        found = [first] if begin == first else []
        found += _between(recurrence, begin, now)
        if len(found) >= most or begin == first:
            return found[-most:]
        span *= 4


def _between(recurrence: Recurrence, moment: datetime, now: datetime) -> Iterator[datetime]:
    while (following := recurrence.after(moment)) is not None and following <= now:
        yield following
        moment = following


def _fields_of(expression: str) -> str:
    fields = ALIASES.get(expression.strip().lower(), expression)
    if len(fields.split()) != FIELDS:
        raise InvalidArgument(
            f"cron {expression!r} does not have five fields",
            hint="Write minute, hour, day of the month, month, day of the week: 0 9 * * mon-fri",
        )
    return fields


def _reason(error: Exception) -> str:
    return str(error)[:1].lower() + str(error)[1:] if str(error) else "it makes no sense"


def zone_of(tz: str) -> tzinfo:
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(
            f"tz {tz!r} is not a time zone that is known here", hint="Write it as Europe/Berlin."
        ) from None


def _offset(instant: datetime, zone: tzinfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def _wall_of(instant: datetime, zone: tzinfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _first_instant(wall: datetime, zone: tzinfo) -> datetime:
    """When the wall first shows this time or, if it never does, a later one."""
    # In a gap, the offset before it leads to an instant after it, and the offset after it to one before.
    late = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if _wall_of(late, zone) == wall:
        return late
    early = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _first_with_offset_of(late, early, zone)


def _next_change(begin: datetime, end: datetime, zone: tzinfo) -> datetime | None:
    """The first instant after the beginning, up to the end, from which another offset holds."""
    offset = _offset(begin, zone)
    while begin < end:
        step = min(begin + STRIDE, end)
        if _offset(step, zone) != offset:
            return _first_with_offset_of(step, begin, zone)
        begin = step
    return None


def _first_with_offset_of(late: datetime, early: datetime, zone: tzinfo) -> datetime:
    """Where, between the two, the offset of the late one begins to hold."""
    offset = _offset(late, zone)
    while late - early > RESOLUTION:
        middle = early + timedelta(seconds=(late - early) // RESOLUTION // 2)
        if _offset(middle, zone) == offset:
            late = middle
        else:
            early = middle
    return late
