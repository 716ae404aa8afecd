"""The waterfall of a run: its attempts, steps, failed tries, signals and children on one scale of time.

Long times in which nothing ran are cut out and drawn as breaks of the same width, which say how long they
were: a run may work for a second and then wait for a week. All other times are in proportion.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

from holdfast._engine.steps import StepValue, TimelineEntry
from holdfast._words.units import span
from holdfast.server.pages.charts import round_seconds
from holdfast.server.pages.render import clock

STEPS = ("step", "transaction", "sleep", "signal", "children", "first", "since")
WAITS = ("sleep", "signal", "children", "first")
_BEGINNINGS = ("created", "claimed", "started")
_FAILURES = ("failed", "dead_letter", "recovered", "killed")
MAX_ROWS = 300
MAX_CHILDREN = 100
GAPS_SHARE = 0.4
"""Of the width, for all times in which nothing ran together."""
LARGEST_GAP = 0.12
CUT_FROM = 1.0
"""Of the time that all attempts took together: longer pauses are cut."""
LEAST = 0.004
TICK_SHARE = 0.13
"""Of the width: the least distance of two labels of the scale."""


@dataclass(frozen=True, slots=True)
class Bar:
    """From the left, and its width, in percent."""

    left: float
    width: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Break:
    """A pause that is drawn shorter than it was: from the left, and its width, in percent."""

    left: float
    width: float
    label: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """From a claim to the event that ended it, or to now."""

    start: datetime
    stop: datetime
    claim: TimelineEntry
    failed: bool


@dataclass(frozen=True, slots=True)
class Child:
    task_id: UUID
    status: str
    bar: Bar


@dataclass(slots=True)
class Row:
    name: str
    kind: str
    note: str = ""
    bars: list[Bar] = field(default_factory=list)
    ticks: list[tuple[float, str]] = field(default_factory=list)
    """Failed tries and signals, from the left in percent."""
    tries: list[str] = field(default_factory=list)
    """What is to be said of each failed try."""
    children: list[Child] = field(default_factory=list)
    left_out: int = 0
    """Children that are not drawn."""
    can_fork: bool = False
    value: StepValue | None = None
    """What the step has stored, where values are shown."""


@dataclass(frozen=True, slots=True)
class Waterfall:
    rows: list[Row]
    left_out: int
    begin: datetime
    end: datetime
    marks: list[tuple[float, str]]
    """Labels of the scale: from the left in percent, and the time since the beginning."""
    breaks: list[Break]
    worked: timedelta
    """The time of all attempts together."""


class Scale:
    """Places times: in proportion, but for long pauses, each of which has the same width."""

    def __init__(self, work: Sequence[tuple[datetime, datetime]], begin: datetime, end: datetime) -> None:
        merged: list[list[datetime]] = []
        for start, stop in sorted((max(begin, a), min(end, max(a, b))) for a, b in work):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], stop)
            else:
                merged.append([start, stop])
        edges = [begin, *(edge for one in merged for edge in one), end]
        lengths = [(b - a).total_seconds() for a, b in pairwise(edges)]
        worked = sum(lengths[1::2]) or 1.0
        pauses = sum(length > worked * CUT_FROM for length in lengths[::2])
        pause = min(LARGEST_GAP, GAPS_SHARE / pauses) if pauses else 0.0
        self._edges = edges
        self._cut = [n % 2 == 0 and length > worked * CUT_FROM for n, length in enumerate(lengths)]
        self._places = [0.0]
        for n, length in enumerate(lengths):
            wide = pause * worked if self._cut[n] else length
            self._places.append(self._places[-1] + max(wide, worked * LEAST if n % 2 else 0.0))
        self._total = self._places[-1] or 1.0

    def place(self, at: datetime) -> float:
        """In percent of the width."""
        n = min(max(bisect_right(self._edges, at) - 1, 0), len(self._edges) - 2)
        begin, end = self._edges[n], self._edges[n + 1]
        length = (end - begin).total_seconds()
        share = min(max((at - begin).total_seconds() / length, 0.0), 1.0) if length else 0.0
        placed = self._places[n] + share * (self._places[n + 1] - self._places[n])
        return 100.0 * placed / self._total

    def breaks(self) -> list[Break]:
        return [
            Break(self.place(a), self.place(b) - self.place(a), span(b - a))
            for cut, (a, b) in zip(self._cut, pairwise(self._edges), strict=True)
            if cut
        ]

    def marks(self) -> list[tuple[float, str]]:
        """At round times since the beginning, as far apart as their labels need, and none within a break."""
        begin, found = self._edges[0], list[tuple[float, str]]()
        for cut, (a, b) in zip(self._cut, pairwise(self._edges), strict=True):
            width = (self.place(b) - self.place(a)) / 100
            seconds = (b - a).total_seconds()
            if cut or not seconds or not width:
                continue
            step = round_seconds(seconds * TICK_SHARE / width)
            for n in range(
                int((a - begin).total_seconds() / step), int((b - begin).total_seconds() / step) + 1
            ):
                at = begin + timedelta(seconds=n * step)
                left = self.place(at)
                if a <= at <= b and (not found or left - found[-1][0] >= 100 * TICK_SHARE):
                    found.append((left, _elapsed(at - begin)))
        return found


def _elapsed(time: timedelta) -> str:
    """Exact, because no two labels of a scale may be the same: 0, 0.5 s, 42 s, 2:30:05, 6 days, 23:59:00."""
    seconds = time.total_seconds()
    return f"{seconds:.6g} s" if 0 < seconds < 60 else str(time).lstrip("0:") or "0"  # noqa: PLR2004 - a minute


def waterfall(
    entries: Sequence[TimelineEntry], now: datetime, values: Sequence[StepValue] = ()
) -> Waterfall | None:
    """None for a task with one attempt and without steps, children and waits: its events describe it."""
    entries = [entry for entry in entries if entry.happened != "deadline"]
    attempts = _attempts(entries, now)
    if len(attempts) < 2 and not any(  # noqa: PLR2004 - several
        entry.happened in (*STEPS, "child", "try", "waits") for entry in entries
    ):
        return None
    starts = [entry.started_at for entry in entries if entry.started_at and entry.happened != "waits"]
    ends = [entry.ended_at for entry in entries if entry.ended_at and entry.happened != "waits"]
    begin, end = min(starts, default=now), min(now, max((*starts, *ends), default=now))
    if any(entry.happened == "waits" for entry in entries) or (attempts and attempts[-1].stop >= now):
        end = now
    scale = Scale([(one.start, one.stop) for one in attempts], begin, end)
    named: dict[str | None, list[TimelineEntry]] = {}
    for entry in entries:
        if entry.happened in ("child", "try", "signalled"):
            named.setdefault(entry.name, []).append(entry)
    steps = [entry for entry in entries if entry.happened in STEPS]
    over = {step.name for step in steps}
    waits = [entry for entry in entries if entry.happened == "waits" and entry.name not in over]
    rows = [_attempt_row(attempts, scale)]
    rows += [_step_row(entry, named.get(entry.name, ()), scale) for entry in steps[:MAX_ROWS]]
    stored = {one.name: one for one in values}
    for row in rows[1:]:
        row.value = stored.get(row.name)
    rows += [
        _waiting_row(entry, named.get(entry.name, ()), attempts, scale, now) for entry in waits[:MAX_ROWS]
    ]
    return Waterfall(
        rows=rows,
        left_out=len(steps[MAX_ROWS:]) + len(waits[MAX_ROWS:]),
        begin=begin,
        end=end,
        marks=scale.marks(),
        breaks=scale.breaks(),
        worked=sum((one.stop - one.start for one in attempts), timedelta()),
    )


def _attempts(entries: Sequence[TimelineEntry], now: datetime) -> list[Attempt]:
    """From each claim to the event that ended it."""
    events = [
        entry
        for entry in entries
        if entry.started_at and entry.happened not in (*STEPS, "child", "try", "waits", "signalled")
    ]
    found = []
    for n, event in enumerate(events):
        if event.happened == "claimed" and event.started_at is not None:
            ended = next((one for one in events[n:] if one.happened not in _BEGINNINGS), None)
            stop = ended.started_at if ended and ended.started_at else now
            found.append(
                Attempt(event.started_at, stop, event, ended is not None and ended.happened in _FAILURES)
            )
    return found


def _attempt_row(attempts: Sequence[Attempt], scale: Scale) -> Row:
    row = Row("Attempts", "attempts")
    for one in attempts:
        title = f"attempt {one.claim.attempt} on {one.claim.worker_id}, {span(one.stop - one.start)}"
        title += ", failed" if one.failed else ""
        row.bars.append(_bar(scale, one.start, one.stop, "failed" if one.failed else "attempt", title))
    return row


def _step_row(entry: TimelineEntry, named: Sequence[TimelineEntry], scale: Scale) -> Row:
    start, stop = entry.started_at, entry.ended_at
    row = Row(entry.name or "", entry.happened, can_fork=True)
    kind = "failed" if entry.reason else "waited" if entry.happened in WAITS else "step"
    if start is not None and stop is not None:
        took = f"{entry.happened}, {span(max(stop, start) - start)}"
        row.bars.append(_bar(scale, start, stop, kind, f"{row.name}: {took}, from {clock(start)}"))
        row.note = span(max(stop, start) - start)
    if entry.tries is not None and entry.tries > 1:
        row.note += f", {entry.tries} tries"
    _add_marks(row, named, scale)
    return row


def _waiting_row(
    entry: TimelineEntry,
    named: Sequence[TimelineEntry],
    attempts: Sequence[Attempt],
    scale: Scale,
    now: datetime,
) -> Row:
    row = Row(entry.name or "", "waits", note=f"waits for {entry.reason} until {clock(entry.ended_at)}")
    since = attempts[-1].stop if attempts else now
    row.bars.append(_bar(scale, since, now, "waiting", row.note))
    _add_marks(row, named, scale)
    return row


def _add_marks(row: Row, named: Sequence[TimelineEntry], scale: Scale) -> None:
    """Failed tries, signals and children of a step."""
    for one in named:
        if one.happened == "try" and one.started_at is not None:
            row.ticks.append((scale.place(one.started_at), f"try {one.tries} failed: {one.reason}"))
            row.tries.append(
                f"Try {one.tries} failed at {clock(one.ended_at or one.started_at)}: {one.reason}"
            )
        elif one.happened == "signalled" and one.started_at is not None:
            row.ticks.append((scale.place(one.started_at), f"signal from {one.actor}"))
    children = [one for one in named if one.happened == "child"]
    if children:
        _add_children(row, children, scale)


def _add_children(row: Row, children: Sequence[TimelineEntry], scale: Scale) -> None:
    ended = sum(child.ended_at is not None for child in children)
    row.note = f"{ended} of {len(children)} children ended" + (f", {row.note}" if row.note else "")
    row.left_out = max(0, len(children) - MAX_CHILDREN)
    for child in children[:MAX_CHILDREN]:
        if child.related_id is None or child.started_at is None:
            continue
        status = child.reason or "open"
        kind = "step" if status == "succeeded" else "waiting" if child.ended_at is None else "failed"
        stop = child.ended_at or child.started_at
        bar = _bar(scale, child.started_at, stop, kind, f"{status}, {span(stop - child.started_at)}")
        row.children.append(Child(child.related_id, status, bar))


def _bar(scale: Scale, start: datetime, stop: datetime, kind: str, title: str) -> Bar:
    left, right = scale.place(start), scale.place(max(start, stop))
    return Bar(left, max(right - left, 100 * LEAST), kind, title)
