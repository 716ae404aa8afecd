"""holdfast workers: list the workers."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.cli.connection import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json, table_lines
from holdfast.engine import Engine, health
from holdfast.engine.workers import WorkerStatus, worker_status

WATCH_SECONDS = 1.0
STATE_COLOURS = {"silent": "red", "late": "yellow", "idle": "dim", "working": "green"}
_COLUMNS = [
    *("worker_id", "state", "running", "per_second", "memory", "serves", "leads", "heard", "started_at"),
    *("hostname", "pid", "version"),
]


def register(app: typer.Typer) -> None:
    app.command()(workers)


def workers(
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second until Ctrl-C.")] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """List workers, their state and the leader."""
    if watch and as_json:
        raise typer.BadParameter("--watch and --json cannot be combined")
    with connected(database_url) as engine:
        if as_json:
            print_json({"workers": [_document(worker) for worker in engine.run(worker_status())]})
        elif watch:
            _watch(lambda: _table(engine))
        else:
            _print(_table(engine))


def _watch(render: Callable[[], Text]) -> None:
    """Refresh in place on a terminal; otherwise print one table after another."""
    console = Console(markup=False, emoji=False, highlight=False)
    with contextlib.suppress(KeyboardInterrupt):
        if not console.is_terminal:
            while True:
                _print(render())
                time.sleep(WATCH_SECONDS)
        with Live(render(), console=console, auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(WATCH_SECONDS)
                live.update(render(), refresh=True)


def _print(table: Text) -> None:
    Console(markup=False, emoji=False, highlight=False).print(table, soft_wrap=True)


def _table(engine: Engine) -> Text:
    found, now = engine.run(worker_status()), engine.run(health.clock())
    if not found:
        return Text("No workers found. Start one: holdfast worker MODULE:APP")
    columns = ["shard", *_COLUMNS] if any(worker.shard for worker in found) else _COLUMNS
    return Text("\n").join(table_lines(columns, [_row(worker, now)[-len(columns) :] for worker in found]))


def _document(worker: WorkerStatus) -> dict[str, Any]:
    """Without shards, there is no field for them."""
    document = asdict(worker)
    return document if worker.shard else {name: value for name, value in document.items() if name != "shard"}


def _row(worker: WorkerStatus, now: datetime) -> list[Any]:
    return [
        worker.shard,
        worker.worker_id,
        state_text(worker),
        running_text(worker),
        None if worker.per_second is None else f"{worker.per_second:.1f}",
        None if worker.memory_bytes is None else f"{worker.memory_bytes / 2**20:.0f} MiB",
        ", ".join([*worker.queues, *(f"{prefix}…" for prefix in worker.type_prefixes)]),
        _leads(worker, now),
        f"{_seconds(now - worker.last_heartbeat)} ago",
        worker.started_at,
        worker.hostname,
        worker.pid,
        worker.version,
    ]


def state_text(worker: WorkerStatus) -> Text:
    return Text(worker.state, style=STATE_COLOURS[worker.state])


def running_text(worker: WorkerStatus) -> str:
    """`10/10 +6`: ten of ten slots are in use, and six more tasks are claimed in advance."""
    ahead = worker.in_flight - worker.running
    return f"{worker.running}/{worker.concurrency}" + (f" +{ahead}" if ahead > 0 else "")


def _leads(worker: WorkerStatus, now: datetime) -> str:
    if not worker.leader or worker.leader_until is None:
        return ""
    return f"term {worker.term}, {_seconds(worker.leader_until - now)} left"


def _seconds(span: timedelta) -> str:
    return f"{max(0.0, span.total_seconds()):.0f} s"
