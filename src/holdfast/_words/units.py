"""Lengths of time and sizes, as people read them."""

from datetime import timedelta

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def span(value: timedelta | float) -> str:
    """Returns a length of time in one or two units."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:  # noqa: PLR2004 - one decimal below ten
        return f"{seconds:.1f} s"
    parts, left = [], round(seconds)
    for length, unit in _UNITS:
        if left >= length:
            parts.append(f"{left // length} {unit}")
            left %= length
    return " ".join(parts[:2])


def size(value: float) -> str:
    """Returns a number of bytes in MiB or GiB."""
    mebibytes = value / 2**20
    return f"{mebibytes:.0f} MiB" if abs(mebibytes) < 1024 else f"{mebibytes / 1024:.1f} GiB"  # noqa: PLR2004
