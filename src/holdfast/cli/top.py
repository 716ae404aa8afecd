"""holdfast top: a live view of queues, rates, workers and problems."""

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast._engine import Engine, activity, health, queues, workers
from holdfast._engine.activity import ActivityCount
from holdfast._engine.health import HealthLine
from holdfast._engine.queues import QueueStatus
from holdfast._engine.workers import WorkerStatus
from holdfast._serialization.text import visible
from holdfast.cli.frame import Json, add_commands
from holdfast.cli.health import level_text, worst_level
from holdfast.cli.output import table_lines
from holdfast.cli.report import Report
from holdfast.cli.workers import running_text, serves_text, state_text

INTERVAL_SECONDS = 1.0
MIN_PAUSE_FACTOR = (
    10  # pause at least this many times as long as a query took: counting a huge backlog is slow
)
ROWS = 15
QUIT = "qQ\x03"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the system at one moment."""

    counted: ActivityCount
    queues: list[QueueStatus]
    workers: list[WorkerStatus]
    health: list[HealthLine]


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second, between two snapshots. None if the statistics were reset in between."""

    enqueued: float | None
    finished: float | None
    errors: float | None


def register(app: typer.Typer) -> None:
    add_commands(app, top)


def top(
    *,
    engine: Engine,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.2, max=60, metavar="SECONDS", help="Refresh interval.")
    ] = INTERVAL_SECONDS,
    as_json: Json = False,
) -> Report | None:
    """Show a live view of queues, rates, workers and problems. Press q to quit."""
    if as_json or once or not sys.stdout.isatty():
        return _once(engine, interval)
    _live(engine, interval)
    return None


def rates_between(before: ActivityCount, after: ActivityCount) -> Rates:
    seconds = (after.counted_at - before.counted_at).total_seconds()

    def rate(first: int, then: int) -> float | None:
        return None if seconds <= 0 or then < first else (then - first) / seconds

    return Rates(
        rate(before.enqueued, after.enqueued),
        rate(before.finished, after.finished),
        rate(before.errors, after.errors),
    )


def _take_snapshot(engine: Engine) -> Snapshot:
    return Snapshot(
        engine.run(activity.count_activity()),
        engine.run(queues.queue_status()),
        engine.run(workers.worker_status()),
        engine.run(health.health()),
    )


def _once(engine: Engine, interval: float) -> Report:
    before = engine.run(activity.count_activity())
    time.sleep(interval)
    snapshot = _take_snapshot(engine)
    rates = rates_between(before, snapshot.counted)
    document = {"queues": snapshot.queues, "workers": snapshot.workers, "health": snapshot.health}
    return Report(
        {"counted_at": snapshot.counted.counted_at, "rates": rates, **document}, _frame(snapshot, rates)
    )


def _live(engine: Engine, interval: float) -> None:
    console = Console(markup=False, emoji=False, highlight=False)
    before = _take_snapshot(engine)
    frame = _frame(before, Rates(None, None, None))
    with (
        contextlib.suppress(KeyboardInterrupt),
        _keys() as pressed,
        Live(frame, console=console, auto_refresh=False, screen=True) as live,
    ):
        live.refresh()
        pause = interval
        while not pressed(pause):
            began = time.monotonic()
            snapshot = _take_snapshot(engine)
            pause = max(interval, MIN_PAUSE_FACTOR * (time.monotonic() - began))
            live.update(_frame(snapshot, rates_between(before.counted, snapshot.counted)), refresh=True)
            before = snapshot


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Yield a function that waits until a key is pressed. Without a terminal, it only sleeps."""
    if not sys.stdin.isatty():
        yield _wait
        return
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    try:
        yield lambda seconds: _pressed(stdin, seconds)
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _pressed(stdin: int, seconds: float) -> bool:
    """Return True if a quit key was pressed or the terminal is gone."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([stdin], [], [], left)[0]:
            read = os.read(stdin, 100).decode(errors="replace")
            if not read or any(key in QUIT for key in read):
                return True
    return False


def _frame(snapshot: Snapshot, rates: Rates) -> Text:
    head = Text("holdfast top", style="bold").append(
        f"  {snapshot.counted.counted_at.astimezone():%H:%M:%S}  "
    )
    head.append_text(level_text(worst_level(snapshot.health)))
    rate_line = (
        f"enqueued {_rate(rates.enqueued)}  finished {_rate(rates.finished)}  errors {_rate(rates.errors)}"
    )
    parts = [head, Text(rate_line), Text(), *_queues(snapshot), Text(), *_workers(snapshot)]
    problems = [line for line in snapshot.health if line.level != "green"]
    if problems:
        parts += [Text(), *(_problem_line(line) for line in problems[:ROWS])]
    return Text("\n").join(parts)


def _queues(snapshot: Snapshot) -> list[Text]:
    if not snapshot.queues:
        return [Text("No queues found.", style="dim")]
    found = sorted(snapshot.queues, key=lambda queue: (-queue.due, -queue.running, queue.queue))
    columns = ["queue", "due", "scheduled", "running", "oldest_due", "workers", "state"]
    rows = [
        [
            queue.queue,
            queue.due,
            queue.scheduled,
            queue.running,
            _ago(queue.oldest_due, snapshot.counted.counted_at),
            queue.live_workers,
            Text("paused", style="yellow") if queue.paused_at else "",
        ]
        for queue in found[:ROWS]
    ]
    return [*table_lines(columns, rows), *_more(len(found))]


def _workers(snapshot: Snapshot) -> list[Text]:
    if not snapshot.workers:
        return [Text("No workers found. Start one: holdfast worker MODULE:APP", style="dim")]
    found = sorted(snapshot.workers, key=lambda worker: (worker.live, -worker.in_flight, worker.worker_id))
    columns = ["worker", "running", "serves", "heard", "state"]
    rows = [
        [
            worker.worker_id,
            running_text(worker),
            serves_text(worker),
            _ago(worker.last_heartbeat, snapshot.counted.counted_at),
            _state(worker),
        ]
        for worker in found[:ROWS]
    ]
    return [*table_lines(columns, rows), *_more(len(found))]


def _state(worker: WorkerStatus) -> Text:
    state = state_text(worker)
    return state.append(", leads", style="cyan") if worker.leader else state


def _more(found: int) -> list[Text]:
    return [Text(f"and {found - ROWS} more", style="dim")] if found > ROWS else []


def _problem_line(line: HealthLine) -> Text:
    error = f": {visible(line.error)}" if line.error else ""
    return level_text(line.level).append(f"  {visible(line.message)}{error}", style="default")


def _rate(rate: float | None) -> str:
    return "?/s" if rate is None else f"{rate:.1f}/s"


def _ago(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return ""
    span = max(timedelta(0), now - moment)
    return f"{span.total_seconds():.0f} s"
