"""Charts: the server computes paths, axes and the values of each step; colours are in the style sheet.

Nothing is drawn in the browser: the pages need no script for it, and no exception from their content policy.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from holdfast._engine.activity import Activity, TypeActivity

WIDTH, HEIGHT = 1000, 100
TICKS = 4
"""Lines of the grid above the floor, at most one more."""
TIME_TICKS = 5
BAR = 6
"""The width of a step between gaps."""

P = TypeVar("P", Activity, TypeActivity)
Value = Callable[[P], float | None]
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_NICE_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Window:
    """The time that a chart shows, in steps of equal length."""

    name: str
    words: str
    length: timedelta
    step: timedelta
    """Of samples."""
    activity_step: timedelta
    """Of what workers report."""


@dataclass(frozen=True, slots=True)
class Series(Generic[P]):
    name: str
    value: Value[P]
    now: float | None = None
    """The current value, if it is known better than by the last step."""


@dataclass(frozen=True, slots=True)
class Line:
    """One series: its path, the area below it, and its last value."""

    name: str
    path: str
    area: str
    last: str


@dataclass(frozen=True, slots=True)
class Step:
    """What is shown while the pointer is over this part of the chart."""

    at: datetime
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    unit: str
    lines: list[Line]
    marks: list[tuple[float, str]]
    """Distance from the top in percent, and label, of each line of the grid."""
    times: list[tuple[float, datetime]]
    """Distance from the left in percent."""
    steps: list[Step]


def chart(
    title: str,
    unit: str,
    points: Sequence[P],
    series: Sequence[Series[P]],
    *,
    show: Callable[[float], str],
    since: timedelta,
    step: timedelta,
    now: datetime,
) -> Chart:
    """Draws the points, of which each has its place in time. Steps without a point are gaps."""
    begin = _floor(now - since, step) + step
    times = [begin + n * step for n in range(max(1, -(-(now - begin) // step)))]
    known = {_floor(point.at, step): point for point in points}
    placed = [known.get(at) for at in times]
    top, grid = _grid([one.value(point) or 0.0 for point in placed if point for one in series], unit)
    return Chart(
        title=title,
        unit=unit,
        lines=[_line(one, placed, top, show) for one in series],
        marks=[(100.0 - 100.0 * mark / top, show(mark)) for mark in grid],
        times=_time_marks(times[0], times[-1] + step),
        steps=[_described(at, point, series, show) for at, point in zip(times, placed, strict=True)],
    )


def _line(one: Series[P], placed: Sequence[P | None], top: float, show: Callable[[float], str]) -> Line:
    pieces: list[list[tuple[float, float]]] = [[]]
    for n, point in enumerate(placed):
        height = None if point is None else one.value(point)
        if height is None:
            pieces.append([])
        else:
            pieces[-1].append(((n + 0.5) * WIDTH / len(placed), HEIGHT - height / top * HEIGHT))
    drawn = [piece for piece in pieces if piece]
    last = one.now
    if last is None:
        last = next((one.value(point) for point in reversed(placed) if point is not None), None)
    shown = "\u2013" if last is None else show(last)
    return Line(one.name, " ".join(map(_path, drawn)), " ".join(map(_area, drawn)), shown)


def _described(
    at: datetime, point: P | None, series: Sequence[Series[P]], show: Callable[[float], str]
) -> Step:
    if point is None:
        return Step(at, ())
    values = ((one.name, one.value(point)) for one in series)
    return Step(at, tuple((name, "\u2013" if value is None else show(value)) for name, value in values))


def _path(piece: list[tuple[float, float]]) -> str:
    (x, y), *rest = piece
    begin = f"M{x:.1f} {y:.1f}"
    return begin + "".join(f"L{x:.1f} {y:.1f}" for x, y in rest) if rest else _bar(x, y)


def _bar(x: float, y: float) -> str:
    """A step between gaps is a bar from the floor, because a dot can hardly be seen."""
    return f"M{x - BAR / 2:.1f} {HEIGHT}V{y:.1f}h{BAR}V{HEIGHT}"


def _area(piece: list[tuple[float, float]]) -> str:
    if len(piece) == 1:
        return f"{_path(piece)}Z"
    return f"{_path(piece)}L{piece[-1][0]:.1f} {HEIGHT}L{piece[0][0]:.1f} {HEIGHT}Z"


def _grid(values: Sequence[float], unit: str) -> tuple[float, list[float]]:
    """The top of the chart, and the values of its grid, which are round numbers of the unit."""
    wanted = max(values, default=0.0) / TICKS
    size = round_seconds(wanted) if unit == "seconds" else _round_number(wanted)
    if unit == "tasks":
        size = max(1.0, size)
    lines = max(1, math.ceil(max(values, default=0.0) / size - 1e-9))
    return lines * size, [n * size for n in range(lines + 1)]


def _round_number(value: float) -> float:
    """The next number that is 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * step for step in (1, 2, 5, 10) if size * step >= value * (1 - 1e-9))


def round_seconds(value: float) -> float:
    """The next round number of seconds, minutes, hours or days."""
    if value <= 1:
        return _round_number(value)
    return next((float(step) for step in _NICE_SECONDS if step >= value), 86400.0 * math.ceil(value / 86400))


def _time_marks(begin: datetime, end: datetime) -> list[tuple[float, datetime]]:
    """At round times, as many as fit."""
    length = end - begin
    seconds = next(
        (step for step in _NICE_SECONDS if step >= 60 and length.total_seconds() / step <= TIME_TICKS + 1),  # noqa: PLR2004 - a minute
        86400,
    )
    step = timedelta(seconds=seconds)
    at = _floor(begin, step) + step
    marks = []
    while at < end:
        marks.append((100.0 * ((at - begin) / length), at))
        at += step
    return marks


def _floor(at: datetime, step: timedelta) -> datetime:
    return _EPOCH + (at - _EPOCH) // step * step
