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

from holdfast.cli.connection import DatabaseUrl, connected
from holdfast.cli.output import Json, pretty, print_fields, print_json, print_table, table_lines
from holdfast.engine import Engine, health, tasks
from holdfast.engine import workers as engine_workers
from holdfast.engine.workers import WorkerStatus, worker_status
from holdfast.errors import InvalidArgument

WATCH_SECONDS = 1.0
STATE_COLOURS = {"silent": "red", "late": "yellow", "idle": "dim", "working": "green"}
_COLUMNS = [
    *("worker_id", "state", "running", "per_second", "memory", "serves", "leads", "heard", "started_at"),
    *("hostname", "pid", "version"),
]


workers = typer.Typer(help="List the workers, and show what one is doing.")


def register(app: typer.Typer) -> None:
    app.add_typer(workers, name="workers")


@workers.callback(invoke_without_command=True)
def list_workers(
    context: typer.Context,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second until Ctrl-C.")] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """List workers, their state and the leader. `holdfast workers show ID` shows one."""
    if context.invoked_subcommand is not None:
        return
    if watch and as_json:
        raise typer.BadParameter("--watch and --json cannot be combined")
    with connected(database_url) as engine:
        if as_json:
            print_json({"workers": [_document(worker) for worker in engine.run(worker_status())]})
        elif watch:
            _watch(lambda: _table(engine))
        else:
            _print(_table(engine))


@workers.command("show")
def show_worker(
    worker: Annotated[str, typer.Argument(metavar="ID", help="The worker: its id, or the end of it.")],
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of tasks.")] = 50,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Show a worker, what it runs with, and the tasks that it holds."""
    with connected(database_url) as engine:
        found = _find_worker(engine, worker)
        held = engine.run(engine_workers.held_by(found.worker_id, limit))
        lines = {one.task_id: one for one in engine.run(tasks.task_lines([one.task_id for one in held]))}
        recorded = engine.run(engine_workers.provenance([found.worker_id]))
        now = engine.run(health.clock())
    shown = [lines[one.task_id] for one in held if one.task_id in lines]
    environment = recorded[-1].environment if recorded else None
    if as_json:
        print_json({**_document(found), "held": shown, "environment": environment})
        return
    named = dict(zip(["shard", *_COLUMNS], _row(found, now), strict=True))
    print_fields((name, value) for name, value in named.items() if name != "shard" or value)
    if shown:
        print_table(
            ["task_id", "status", "attempt", "running for", "type", "key"],
            [
                (
                    one.task_id,
                    one.status,
                    f"{one.attempt}/{one.max_attempts}",
                    None if one.started_at is None else _seconds(now - one.started_at),
                    one.type,
                    one.idempotency_key,
                )
                for one in shown
            ],
            title="tasks",
        )
    else:
        typer.echo("\nIt holds no tasks.")
    if environment is not None:
        typer.echo(f"\nruns with\n{pretty(environment)}")


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
