"""holdfast workers: list the workers, and show what one is doing."""

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

from holdfast._engine import Engine, health, tasks
from holdfast._engine import workers as engine_workers
from holdfast._engine.tasks import TaskLine
from holdfast._engine.workers import WorkerStatus, worker_status
from holdfast.cli.frame import Json, add_commands, framed
from holdfast.cli.output import pretty, print_lines, table_lines
from holdfast.cli.report import Fields, Report, Table
from holdfast.errors import InvalidArgument

WATCH_SECONDS = 1.0
STATE_COLOURS = {"silent": "red", "late": "yellow", "idle": "dim", "working": "green"}


def register(app: typer.Typer) -> None:
    workers = typer.Typer(name="workers", help="List the workers, and show what one is doing.")
    workers.callback(invoke_without_command=True)(framed(list_workers))
    add_commands(workers, show=show_worker)
    app.add_typer(workers)


def list_workers(
    context: typer.Context,
    *,
    engine: Engine,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second until Ctrl-C.")] = False,
    as_json: Json = False,
) -> Report | None:
    """List workers, their state and the leader. `holdfast workers show ID` shows one."""
    if context.invoked_subcommand is not None:
        return None
    if watch and as_json:
        raise typer.BadParameter("--watch and --json cannot be combined")
    if watch:
        _watch(lambda: _table(*_read(engine)))
        return None
    found, now = _read(engine)
    return Report({"workers": [_document(worker) for worker in found]}, _table(found, now))


def show_worker(
    engine: Engine,
    worker: Annotated[str, typer.Argument(metavar="ID", help="The worker: its id, or the end of it.")],
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of tasks.")] = 50,
) -> Report:
    """Show a worker, what it runs with, and the tasks that it holds."""
    found = _find_worker(engine, worker)
    held = engine.run(engine_workers.held_by(found.worker_id, limit))
    lines = {one.task_id: one for one in engine.run(tasks.task_lines([one.task_id for one in held]))}
    recorded = engine.run(engine_workers.provenance([found.worker_id]))
    now = engine.run(health.clock())
    shown = [lines[one.task_id] for one in held if one.task_id in lines]
    environment = recorded[-1].environment if recorded else None
    return Report(
        {**_document(found), "held": shown, "environment": environment},
        Fields((name, text) for name, text in _fields(found, now).items() if name != "shard" or text),
        _held(shown, now).under("tasks") if shown else "\nIt holds no tasks.",
        *([] if environment is None else [f"\nruns with\n{pretty(environment)}"]),
    )


def _held(tasks: list[TaskLine], now: datetime) -> Table:
    rows = [
        (
            one.task_id,
            one.status,
            f"{one.attempt}/{one.max_attempts}",
            None if one.started_at is None else _seconds(now - one.started_at),
            one.type,
            one.idempotency_key,
        )
        for one in tasks
    ]
    return Table(["task_id", "status", "attempt", "running for", "type", "key"], rows)


def _find_worker(engine: Engine, name: str) -> WorkerStatus:
    known = engine.run(worker_status())
    found = [one for one in known if one.worker_id == name] or [
        one for one in known if one.worker_id.endswith(name)
    ]
    if len(found) != 1:
        ids = ", ".join(one.worker_id for one in (found or known)[:20]) or "none"
        what = "there is no worker" if not found else f"{len(found)} workers end with"
        raise InvalidArgument(f"{what} {name!r}", hint=f"Known: {ids}. One that has stopped is not listed.")
    return found[0]


def _watch(render: Callable[[], Text]) -> None:
    """Refresh in place on a terminal; otherwise print one table after another."""
    console = Console(markup=False, emoji=False, highlight=False)
    with contextlib.suppress(KeyboardInterrupt):
        if not console.is_terminal:
            while True:
                print_lines([render()])
                time.sleep(WATCH_SECONDS)
        with Live(render(), console=console, auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(WATCH_SECONDS)
                live.update(render(), refresh=True)


def _read(engine: Engine) -> tuple[list[WorkerStatus], datetime]:
    return engine.run(worker_status()), engine.run(health.clock())


def _table(found: list[WorkerStatus], now: datetime) -> Text:
    if not found:
        return Text("No workers found. Start one: holdfast worker MODULE:APP")
    rows = [_fields(worker, now) for worker in found]
    return Text("\n").join(table_lines(list(rows[0]), [list(row.values()) for row in rows]))


def _document(worker: WorkerStatus) -> dict[str, Any]:
    """Without shards, there is no field for them."""
    document = asdict(worker)
    return document if worker.shard else {name: value for name, value in document.items() if name != "shard"}


def _fields(worker: WorkerStatus, now: datetime) -> dict[str, Any]:
    return {
        "shard": worker.shard,
        "worker_id": worker.worker_id,
        "state": state_text(worker),
        "running": running_text(worker),
        "per_second": None if worker.per_second is None else f"{worker.per_second:.1f}",
        "memory": None if worker.memory_bytes is None else f"{worker.memory_bytes / 2**20:.0f} MiB",
        "serves": serves_text(worker),
        "leads": _leads(worker, now),
        "heard": f"{_seconds(now - worker.last_heartbeat)} ago",
        "started_at": worker.started_at,
        "hostname": worker.hostname,
        "pid": worker.pid,
        "version": worker.version,
    }


def state_text(worker: WorkerStatus) -> Text:
    return Text(worker.state, style=STATE_COLOURS[worker.state])


def running_text(worker: WorkerStatus) -> str:
    """`10/10 +6`: ten of ten slots are in use, and six more tasks are claimed in advance."""
    ahead = worker.in_flight - worker.running
    return f"{worker.running}/{worker.concurrency}" + (f" +{ahead}" if ahead > 0 else "")


def serves_text(worker: WorkerStatus) -> str:
    return ", ".join([*worker.queues, *(f"{prefix}…" for prefix in worker.type_prefixes)])


def _leads(worker: WorkerStatus, now: datetime) -> str:
    if not worker.leader or worker.leader_until is None:
        return ""
    return f"term {worker.term}, {_seconds(worker.leader_until - now)} left"


def _seconds(span: timedelta) -> str:
    return f"{max(0.0, span.total_seconds()):.0f} s"
