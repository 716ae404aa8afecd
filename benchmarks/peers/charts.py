"""Charts as SVG, readable on light and dark pages: bars to compare, lines to show growth."""

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH = 720
LEFT = 150
ROW = 26
HEIGHT = 260
BOTTOM = 40
COLOURS = ("#2563eb", "#d97706", "#059669", "#be123c")
OTHERS = "#94a3b8"
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}" '
    'font-family="system-ui, sans-serif" font-size="13">\n'
    "<style>text {{ fill: #334155 }} "
    "@media (prefers-color-scheme: dark) {{ text {{ fill: #e2e8f0 }} }}</style>\n"
    "<title>{title}</title>\n"
)


def bars(title: str, values: Mapping[str, float], ours: str) -> str:
    """One bar for each, the longest first; ours in colour."""
    ordered = sorted(values.items(), key=lambda item: -item[1])
    most = max(values.values())
    rows = []
    for place, (name, value) in enumerate(ordered):
        top = 10 + place * ROW
        width = (WIDTH - LEFT - 90) * value / most
        rows.append(
            f'<text x="{LEFT - 8}" y="{top + 15}" text-anchor="end">{escape(name)}</text>\n'
            f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="18" rx="2" '
            f'fill="{COLOURS[0] if name == ours else OTHERS}"/>\n'
            f'<text x="{LEFT + width + 6:.1f}" y="{top + 14}">{value:,.0f}</text>\n'
        )
    return _svg(title, 20 + len(ordered) * ROW, rows)


def lines(title: str, across: Sequence[float], curves: Mapping[str, Sequence[float]]) -> str:
    """Curves over a logarithmic axis; the other axis begins at zero."""
    most = max(value for curve in curves.values() for value in curve) * 1.1
    first, last = (math.log10(across[place]) for place in (0, -1))

    def x(value: float) -> float:
        return 70 + (WIDTH - 110) * (math.log10(value) - first) / (last - first)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 30) * value / most

    drawn = [
        f'<line x1="70" x2="{WIDTH - 40}" y1="{y(part * most):.1f}" y2="{y(part * most):.1f}" '
        f'stroke="{OTHERS}" stroke-opacity="0.4"/>\n'
        f'<text x="62" y="{y(part * most) + 4:.1f}" text-anchor="end">{_short(part * most)}</text>\n'
        for part in (0, 0.25, 0.5, 0.75, 1)
    ]
    drawn += [
        f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{_short(value)}</text>\n'
        for value in across
    ]
    for place, (name, curve) in enumerate(curves.items()):
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in zip(across, curve, strict=True))
        drawn.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[place]}" stroke-width="2"/>\n'
            f'<circle cx="{80 + place * 200}" cy="14" r="5" fill="{COLOURS[place]}"/>\n'
            f'<text x="{90 + place * 200}" y="18">{escape(name)}</text>\n'
        )
    return _svg(title, HEIGHT, drawn)


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    return HEAD.format(width=WIDTH, height=height, title=escape(title)) + "".join(parts) + "</svg>\n"


def _short(value: float) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
