"""holdfast top: queues, rates, workers and troubles, live."""

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

from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.health import level_text, worst
from holdfast.cli.output import Json, print_json, table_lines
from holdfast.cli.workers import running_text, state_text
from holdfast.engine import Engine, health, queues, workers
from holdfast.engine.health import ActivityCount, HealthLine
from holdfast.engine.queues import QueueStatus
from holdfast.engine.workers import WorkerStatus
from holdfast.serialization.text import visible

INTERVAL_SECONDS = 1.0
GENTLE = 10  # times as long as a look took is waited at least: a huge backlog takes long to count
ROWS = 15
QUIT = "qQ\x03"


@dataclass(frozen=True, slots=True)
class Look:
    """The whole house at one moment."""

    counted: ActivityCount
    queues: list[QueueStatus]
    workers: list[WorkerStatus]
    health: list[HealthLine]


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second, between two looks; None where the server's statistics began anew in between."""

    enqueued: float | None
    finished: float | None
    errors: float | None


def register(app: typer.Typer) -> None:
    app.command()(top)


def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, and end.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.2, max=60, metavar="SECONDS", help="How often to look.")
    ] = INTERVAL_SECONDS,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Show queues, rates, workers and troubles, live. Press q to quit."""
    with connected(database_url) as engine:
        if as_json or once or not sys.stdout.isatty():
            _once(engine, interval, as_json=as_json)
        else:
            _live(engine, interval)


def rates_between(before: ActivityCount, after: ActivityCount) -> Rates:
    seconds = (after.counted_at - before.counted_at).total_seconds()

    def rate(first: int, then: int) -> float | None:
        return None if seconds <= 0 or then < first else (then - first) / seconds

    return Rates(
        rate(before.enqueued, after.enqueued),
        rate(before.finished, after.finished),
        rate(before.errors, after.errors),
    )


def _look(engine: Engine) -> Look:
    return Look(
        engine.run(health.count_activity()),
        engine.run(queues.queue_status()),
        engine.run(workers.worker_status()),
        engine.run(health.health()),
    )


def _once(engine: Engine, interval: float, *, as_json: bool) -> None:
    before = engine.run(health.count_activity())
    time.sleep(interval)
    look = _look(engine)
    rates = rates_between(before, look.counted)
    if as_json:
        document = {"queues": look.queues, "workers": look.workers, "health": look.health}
        print_json({"counted_at": look.counted.counted_at, "rates": rates, **document})
    else:
        Console(markup=False, emoji=False, highlight=False).print(_frame(look, rates), soft_wrap=True)


def _live(engine: Engine, interval: float) -> None:
    console = Console(markup=False, emoji=False, highlight=False)
    before = _look(engine)
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
            look = _look(engine)
            pause = max(interval, GENTLE * (time.monotonic() - began))
            live.update(_frame(look, rates_between(before.counted, look.counted)), refresh=True)
            before = look


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """A wait that a key ends. Without a terminal to read from, time ends it and nothing else."""
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
    """Whether it is to end: by a key that means so, or because there is nobody any more to press one."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([stdin], [], [], left)[0]:
            read = os.read(stdin, 100).decode(errors="replace")
            if not read or any(key in QUIT for key in read):
                return True
    return False


def _frame(look: Look, rates: Rates) -> Text:
    head = Text("holdfast top", style="bold").append(f"  {look.counted.counted_at.astimezone():%H:%M:%S}  ")
    head.append_text(level_text(worst(look.health)))
    pace = f"enqueued {_rate(rates.enqueued)}  finished {_rate(rates.finished)}  errors {_rate(rates.errors)}"
    parts = [head, Text(pace), Text(), *_queues(look), Text(), *_workers(look)]
    troubles = [line for line in look.health if line.level != "green"]
    if troubles:
        parts += [Text(), *(_trouble(line) for line in troubles[:ROWS])]
    return Text("\n").join(parts)


def _queues(look: Look) -> list[Text]:
    if not look.queues:
        return [Text("There is no queue yet.", style="dim")]
    found = sorted(look.queues, key=lambda queue: (-queue.due, -queue.running, queue.queue))
    columns = ["queue", "due", "scheduled", "running", "oldest_due", "workers", "state"]
    rows = [
        [
            queue.queue,
            queue.due,
            queue.scheduled,
            queue.running,
            _ago(queue.oldest_due, look.counted.counted_at),
            queue.live_workers,
            Text("paused", style="yellow") if queue.paused_at else "",
        ]
        for queue in found[:ROWS]
    ]
    return [*table_lines(columns, rows), *_more(len(found))]


def _workers(look: Look) -> list[Text]:
    if not look.workers:
        return [Text("No worker is registered. Start one with holdfast worker.", style="dim")]
    found = sorted(look.workers, key=lambda worker: (worker.live, -worker.in_flight, worker.worker_id))
    columns = ["worker", "running", "serves", "heard", "state"]
    rows = [
        [
            worker.worker_id,
            running_text(worker),
            ", ".join([*worker.queues, *(f"{prefix}…" for prefix in worker.type_prefixes)]),
            _ago(worker.last_heartbeat, look.counted.counted_at),
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


def _trouble(line: HealthLine) -> Text:
    return level_text(line.level).append(f"  {visible(line.message)}", style="default")


def _rate(rate: float | None) -> str:
    return "?/s" if rate is None else f"{rate:.1f}/s"


def _ago(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return ""
    span = max(timedelta(0), now - moment)
    return f"{span.total_seconds():.0f} s"
