"""When schedules are due: the rules in words. All zones are compared with a walk in tests/acceptance."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._worker.recurrence import ALIASES, Cron, Every, Recurrence, newest_times
from holdfast.errors import InvalidArgument

BERLIN = ZoneInfo("Europe/Berlin")
ANCHOR = datetime(2001, 1, 1, tzinfo=UTC)


def times(recurrence: Recurrence, begin: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    for _ in range(count):
        following = recurrence.after(begin)
        assert following is not None
        found.append(following)
        begin = following
    return found


def in_berlin(cron: str, day: datetime, count: int) -> list[str]:
    shown = [time.astimezone(BERLIN) for time in times(Cron(cron, "Europe/Berlin"), day, count)]
    return [f"{time:%d %H:%M %Z}" for time in shown]


SPRING = datetime(2024, 3, 30, 12, tzinfo=BERLIN)  # the next morning, 02:00 is 03:00
AUTUMN = datetime(2024, 10, 26, 12, tzinfo=BERLIN)  # the next morning, 03:00 is 02:00


def test_a_skipped_hour_fires_at_the_first_valid_instant() -> None:
    assert in_berlin("30 2 * * *", SPRING, 2) == ["31 03:00 CEST", "01 02:30 CEST"]


def test_several_skipped_times_fire_once() -> None:
    assert in_berlin("*/10 2 * * *", SPRING, 2) == ["31 03:00 CEST", "01 02:00 CEST"]


def test_a_skipped_time_and_the_one_after_it_are_one_if_they_coincide() -> None:
    assert in_berlin("0 2,3 * * *", SPRING, 3) == ["31 03:00 CEST", "01 02:00 CEST", "01 03:00 CEST"]


def test_a_repeated_hour_fires_once_and_the_first_time() -> None:
    assert in_berlin("30 2 * * *", AUTUMN, 2) == ["27 02:30 CEST", "28 02:30 CET"]


def test_every_hour_fires_in_both_of_a_repeated_hour() -> None:
    begin = datetime(2024, 10, 27, 1, 0, tzinfo=BERLIN)
    assert in_berlin("30 * * * *", begin, 4) == [
        *("27 01:30 CEST", "27 02:30 CEST", "27 02:30 CET", "27 03:30 CET"),
    ]


def test_every_hour_does_not_make_up_for_a_skipped_one() -> None:
    begin = datetime(2024, 3, 31, 1, 0, tzinfo=BERLIN)
    assert in_berlin("7 * * * *", begin, 3) == ["31 01:07 CET", "31 03:07 CEST", "31 04:07 CEST"]


def test_a_day_that_was_left_out_fires_on_the_next() -> None:
    cron = Cron("0 9 30 12 *", "Pacific/Apia")
    found = cron.after(datetime(2011, 12, 1, tzinfo=UTC))
    assert found == datetime(2011, 12, 31, 0, 0, tzinfo=ZoneInfo("Pacific/Apia"))


def test_a_fraction_of_a_second_after_a_time_is_after_it() -> None:
    noon = datetime(2030, 1, 31, 12, tzinfo=UTC)
    for cron in (Cron("0 12 * * *"), Cron("* * * * *")):
        following = cron.after(noon + timedelta(microseconds=1))
        assert following is not None
        assert following > noon
        assert cron.after(noon - timedelta(microseconds=1)) == noon


def test_days_of_month_and_week_are_as_in_cron() -> None:
    """Both named: either will do. One begins with a star: both must hold."""
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    assert [f"{day:%a %d}" for day in times(Cron("0 0 13 * fri"), begin, 3)] == ["Fri 04", "Fri 11", "Sun 13"]
    assert [f"{day:%a %d}" for day in times(Cron("0 0 */7 * fri"), begin, 2)] == ["Fri 01", "Fri 08"]


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_stands_for_its_fields(alias: str) -> None:
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    assert times(Cron(alias.upper()), begin, 5) == times(Cron(ALIASES[alias]), begin, 5)


def test_there_may_be_no_further_time() -> None:
    assert Cron("0 0 31 12 *").after(datetime(9999, 12, 31, 1, tzinfo=UTC)) is None
    assert Cron("* * * * *", "Pacific/Apia").after(datetime(9999, 12, 31, 23, 59, tzinfo=UTC)) is None
    assert Cron("0 0 31 2,4 mon#5").after(datetime(9999, 12, 31, tzinfo=UTC)) is None
    assert Every(timedelta(days=3650), ANCHOR).after(datetime(9999, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    "cron",
    ["", "@often", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "0 9 * * fri-mon", "a b c d e"],
)
def test_what_is_no_cron_expression_is_refused(cron: str) -> None:
    with pytest.raises(InvalidArgument, match="cron"):
        Cron(cron)


@pytest.mark.parametrize("tz", ["", "Mars/North", "../etc/passwd", "Europe", "\0"])
def test_what_is_no_zone_is_refused(tz: str) -> None:
    with pytest.raises(InvalidArgument, match="tz"):
        Cron("* * * * *", tz)


def test_an_interval_counts_from_its_anchor() -> None:
    every = Every(timedelta(minutes=7), ANCHOR)
    begin = ANCHOR + timedelta(days=10_000, seconds=1)
    found = times(every, begin, 3)
    assert all((time - ANCHOR) % timedelta(minutes=7) == timedelta(0) for time in found)
    assert timedelta(0) < found[0] - begin <= timedelta(minutes=7)
    assert found[1] - found[0] == timedelta(minutes=7)


def test_an_interval_has_times_before_its_anchor() -> None:
    assert Every(timedelta(hours=1), ANCHOR).after(ANCHOR - timedelta(minutes=90)) == ANCHOR - timedelta(
        hours=1
    )


def test_an_interval_of_no_length_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="every"):
        Every(timedelta(0), ANCHOR)


@given(
    minutes=st.integers(0, 3_000_000),
    seconds=st.integers(0, 59),
    most=st.integers(1, 20),
    every=st.booleans(),
)
def test_the_newest_times_are_the_last_of_all(minutes: int, seconds: int, most: int, every: bool) -> None:
    """Against the plain way of asking for all of them, where there are not too many."""
    recurrence: Recurrence = (
        Every(timedelta(hours=5), ANCHOR) if every else Cron("0 */5 * * *", "Asia/Tehran")
    )
    first = recurrence.after(ANCHOR)
    assert first is not None
    now = first + timedelta(minutes=min(minutes, 60_000), seconds=seconds)
    everything, moment = [first], first
    while (following := recurrence.after(moment)) is not None and following <= now:
        everything.append(following)
        moment = following
    assert newest_times(recurrence, first, now, most) == everything[-most:]


def test_a_long_silence_is_not_walked_through() -> None:
    """Ten years of minutes are five million."""
    asked = 0

    class Counting(Cron):
        def after(self, moment: datetime) -> datetime | None:
            nonlocal asked
            asked += 1
            return super().after(moment)

    now = datetime(2030, 1, 1, tzinfo=UTC)
    found = newest_times(Counting("* * * * *", "Europe/Berlin"), now - timedelta(days=3650), now, 100)
    assert found == [now - timedelta(minutes=n) for n in reversed(range(100))]
    assert asked < 1000


def test_a_time_that_was_planned_counts_even_if_it_is_none_any_more() -> None:
    """A new version of the zones, or a leader with an older one, moves nothing that was promised."""
    promised = datetime(2030, 1, 31, 12, 30, tzinfo=UTC)
    assert newest_times(Cron("0 12 * * *"), promised, promised, 1) == [promised]
