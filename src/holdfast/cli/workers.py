"""holdfast worker and workers: run a worker, and list all workers."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from holdfast.app import App
from holdfast.cli.app_loader import load_app
from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json, table_lines
from holdfast.engine import Engine, health
from holdfast.engine.workers import WorkerStatus, worker_status
from holdfast.settings import Settings

WATCH_SECONDS = 1.0
STATE_COLOURS = {"silent": "red", "late": "yellow", "idle": "dim", "working": "green"}
_COLUMNS = [
    *("worker_id", "state", "running", "serves", "leads", "heard", "started_at"),
    *("hostname", "pid", "version"),
]
EXIT_SECONDS = 3.0

# Plain text: the settings validate the values and name the variable in errors.
TextOption = str | None


def register(app: typer.Typer) -> None:
    app.command()(worker)
    app.command()(workers)


def worker(
    application: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:APP",
            help="The application: shop.tasks:app. Without one, only tasks that need no handler are run: "
            "database functions and messages.",
        ),
    ] = None,
    *,
    queues: Annotated[
        TextOption, typer.Option(metavar="NAMES", help="Queues to serve, separated by commas: default,mail")
    ] = None,
    prefixes: Annotated[
        TextOption,
        typer.Option(
            metavar="NAMES", help="Prefixes of the task types to serve, separated by commas: billing.,mail."
        ),
    ] = None,
    concurrency: Annotated[
        TextOption, typer.Option(metavar="NUMBER", help="Number of tasks to run at once.")
    ] = None,
    lease: Annotated[
        TextOption, typer.Option(metavar="DURATION", help="How long a task is held without a heartbeat.")
    ] = None,
    heartbeat: Annotated[
        TextOption,
        typer.Option(metavar="DURATION", help="How often leases are renewed; at most half a lease."),
    ] = None,
    grace: Annotated[
        TextOption,
        typer.Option(metavar="DURATION", help="How long running tasks may continue after a signal."),
    ] = None,
    poll_interval: Annotated[
        TextOption, typer.Option(metavar="DURATION", help="Maximum time between polls for tasks.")
    ] = None,
    worker_id: Annotated[TextOption, typer.Option(metavar="NAME", help="Name of the worker.")] = None,
    log_format: Annotated[
        TextOption, typer.Option(metavar="FORMAT", help="Log format: console or json.")
    ] = None,
    log_level: Annotated[
        TextOption, typer.Option(metavar="LEVEL", help="Log level: debug, info, warning or error.")
    ] = None,
    metrics_port: Annotated[
        TextOption, typer.Option(metavar="PORT", help="Serve Prometheus metrics on this port of 127.0.0.1.")
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, max=1000, metavar="NUMBER", help="Number of worker processes.")
    ] = 1,
    database_url: DatabaseUrl = None,
) -> None:
    """Run the tasks of an application until SIGTERM or Ctrl-C."""
    options = {
        "worker_queues": queues,
        "worker_type_prefixes": prefixes,
        "worker_concurrency": concurrency,
        "lease": lease,
        "heartbeat": heartbeat,
        "grace": grace,
        "poll_interval": poll_interval,
        "worker_id": worker_id,
        "log_format": log_format,
        "log_level": log_level,
        "metrics_port": metrics_port,
        "database_url": database_url,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if processes > 1:
        code = _run_many(processes, given)
    else:
        code = (App() if application is None else load_app(application)).run_worker(**given)
    _exit_within(EXIT_SECONDS, code)
    raise typer.Exit(code)


def _run_many(processes: int, given: dict[str, str]) -> int:
    from holdfast.logs import configure, worker_log  # noqa: PLC0415 - other commands start faster
    from holdfast.worker.fleet import supervise  # noqa: PLC0415 - as above
    from holdfast.worker.startup import check_settings  # noqa: PLC0415 - as above

    settings = Settings.load(**given)
    check_settings(settings)  # once here, not in every worker process
    configure(settings.log_format, settings.log_level)
    return supervise(
        processes,
        grace=settings.grace.total_seconds(),
        log=worker_log("supervisor"),
        metrics_port=settings.metrics_port,
    )


def _exit_within(seconds: float, code: int) -> None:
    """Exit even if handlers left threads running: Python would wait for them."""
    exiting = threading.Timer(seconds, os._exit, [code])
    exiting.daemon = True
    exiting.start()


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
            print_json({"workers": engine.run(worker_status())})
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
    return Text("\n").join(table_lines(_COLUMNS, [_row(worker, now) for worker in found]))


def _row(worker: WorkerStatus, now: datetime) -> list[Any]:
    return [
        worker.worker_id,
        state_text(worker),
        running_text(worker),
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
