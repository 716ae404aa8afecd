"""Templates: all output is escaped; control and bidirectional characters are shown as escapes."""

import asyncio
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote
from zoneinfo import ZoneInfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from holdfast._engine.shards import name_of_shard
from holdfast._serialization.text import visible
from holdfast._words.units import size, span

MAX_CHARACTERS = 100_000
NONE = "\u2013"

P = ParamSpec("P")
T = TypeVar("T")
_thread = ThreadPoolExecutor(1, "holdfast-pages")


async def in_thread(function: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Runs it beside the event loop: a large page must not hold up the requests of others.

    All pages share one thread, which the interpreter interrupts every few milliseconds.
    """
    return await asyncio.get_running_loop().run_in_executor(_thread, lambda: function(*given, **named))


def finalize(value: Any) -> Any:
    """Applied to every value that a template outputs, except markup of the template itself."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def pretty(value: Any) -> str:
    written = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return written if len(written) <= MAX_CHARACTERS else f"{written[:MAX_CHARACTERS]}\n… (truncated)"


def ago(value: datetime | None, now: datetime | None = None) -> str:
    if value is None:
        return NONE
    distance = ((now or datetime.now(UTC)) - value).total_seconds()
    if abs(distance) < 1:
        return "now"
    return f"{span(distance)} ago" if distance > 0 else f"in {span(-distance)}"


def age(value: datetime) -> str:
    """How long ago, in one unit: a list has little room."""
    return " ".join(span(max(0.0, (datetime.now(UTC) - value).total_seconds())).split()[:2])


def clock(value: datetime | None) -> str:
    return NONE if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


_TOLD_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d(?::\d\d)?")


def with_times(text: str) -> Markup:
    """Times in a sentence of the engine, marked for the browser, which shows them in its zone."""
    text = visible(text)
    marked, end = Markup(), 0
    for found in _TOLD_TIME.finditer(text):
        at = datetime.fromisoformat(found[0])
        shown = Markup('<time data-local="day" datetime="{}">{}</time>').format(at.isoformat(), clock(at))
        marked += escape(text[end : found.start()]) + shown
        end = found.end()
    return marked + escape(text[end:])


def wall_time(value: datetime, tz: str | None) -> str:
    """As a clock in that time zone shows it; empty if the zone is UTC or unknown here."""
    try:
        zone = ZoneInfo(tz or "UTC")
    except (KeyError, ValueError, OSError):
        return ""
    return "" if tz in (None, "UTC") else f"{value.astimezone(zone):%a %d %b %H:%M} {tz}"


def count(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f")


def rate(value: float) -> str:
    """How many in a second."""
    return f"{_number(value)}/s"


def _number(value: float) -> str:
    return f"{value:.2f}" if 0 < value < 10 else count(value)  # noqa: PLR2004 - two decimals below ten


def segment(value: str) -> str:
    """Any text as one path segment."""
    return quote(value, safe="")


environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent.parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=finalize,
    trim_blocks=True,
    lstrip_blocks=True,
)
environment.filters |= {
    "pretty": pretty,
    "span": lambda value: NONE if value is None else span(value),
    "ago": ago,
    "age": age,
    "clock": clock,
    "with_times": with_times,
    "count": count,
    "segment": segment,
    "size": lambda value: NONE if value is None else size(value),
    "rate": rate,
    "iso": lambda value: value.astimezone(UTC).isoformat(),
    "merge": lambda one, other: one | other,
    "shard": name_of_shard,
}
