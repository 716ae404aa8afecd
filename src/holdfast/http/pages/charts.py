"""Charts: the server computes the SVG paths; colours are in the style sheet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.engine.activity import Activity

WIDTH, HEIGHT, FLOOR = 600, 150, 20
GAP_STEPS = 3

Value = Callable[[Activity], float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """One series: its path, the area below it, and its last value."""

    name: str
    path: str
    area: str
    last: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    lines: list[Line]
    top: float
    marks: list[tuple[float, float]]
    """Height and value of each line of the grid."""
    begin: datetime | None
    end: datetime | None


def chart(points: Sequence[Activity], *series: tuple[str, Value]) -> Chart:
    known = [value(point) or 0.0 for point in points for _, value in series]
    top = _round_up(max(known, default=0.0))
    scale = (HEIGHT - FLOOR) / top
    return Chart(
        lines=[_line(name, points, value, scale) for name, value in series],
        top=top,
        marks=[(HEIGHT - FLOOR - top * share * scale + FLOOR / 2, top * share) for share in (0.5, 1.0)],
        begin=points[0].at if points else None,
        end=points[-1].at if points else None,
    )


def _line(name: str, points: Sequence[Activity], value: Value, scale: float) -> Line:
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, point in zip(_positions(points), points, strict=True):
        height = value(point)
        if height is None:
            pieces.append([])
        else:
            pieces[-1].append((x, HEIGHT - FLOOR / 2 - height * scale))
    drawn = [piece for piece in pieces if piece]
    last = value(points[-1]) if points else None
    return Line(name, " ".join(map(_path, drawn)), " ".join(map(_area, drawn)), last)


def _positions(points: Sequence[Activity]) -> list[float]:
    if len(points) < 2:  # noqa: PLR2004 - two points make a line
        return [float(WIDTH)] * len(points)
    begin, end = points[0].at.timestamp(), points[-1].at.timestamp()
    return [(point.at.timestamp() - begin) / (end - begin) * WIDTH for point in points]


def _path(piece: list[tuple[float, float]]) -> str:
    (x, y), *rest = piece
    begin = f"M{x:.1f} {y:.1f}"
    return begin + "".join(f"L{x:.1f} {y:.1f}" for x, y in rest) if rest else f"{begin}h0.1"


def _area(piece: list[tuple[float, float]]) -> str:
    floor = HEIGHT - FLOOR / 2
    return f"{_path(piece)}L{piece[-1][0]:.1f} {floor}L{piece[0][0]:.1f} {floor}Z"


def _round_up(value: float) -> float:
    """To 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    size = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 10.0 ** -(len(f"{1 / value:.0f}"))
    return next(size * step for step in (1, 2, 5, 10, 20, 50, 100) if size * step >= value)
