"""holdfast worker: run a worker. Imports nothing that a running worker does not need, such as Rich."""

import os
import threading
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from holdfast.app import App
from holdfast.cli.app_loader import load_app
from holdfast.cli.connection import DatabaseUrl
from holdfast.cli.frame import add_commands
from holdfast.cli.setting_options import LogFormat, LogLevel, Text, given
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings

EXIT_SECONDS = 3.0


def register(app: typer.Typer) -> None:
    add_commands(app, worker)


@dataclass(frozen=True)
class WorkerOptions:
    """Settings of a worker."""

    worker_queues: Annotated[
        Text,
        typer.Option("--queues", metavar="NAMES", help="Queues to serve, separated by commas: default,mail"),
    ] = None
    worker_type_prefixes: Annotated[
        Text,
        typer.Option(
            "--prefixes",
            metavar="NAMES",
            help="Prefixes of the task types to serve, separated by commas: billing.,mail.",
        ),
    ] = None
    worker_concurrency: Annotated[
        Text, typer.Option("--concurrency", metavar="NUMBER", help="Number of tasks to run at once.")
    ] = None
    lease: Annotated[
        Text, typer.Option(metavar="DURATION", help="How long a task is held without a heartbeat.")
    ] = None
    heartbeat: Annotated[
        Text,
        typer.Option(metavar="DURATION", help="How often leases are renewed; at most half a lease."),
    ] = None
    grace: Annotated[
        Text,
        typer.Option(metavar="DURATION", help="How long running tasks may continue after a signal."),
    ] = None
    poll_interval: Annotated[
        Text, typer.Option(metavar="DURATION", help="Maximum time between polls for tasks.")
    ] = None
    worker_id: Annotated[Text, typer.Option(metavar="NAME", help="Name of the worker.")] = None
    log_format: LogFormat = None
    log_level: LogLevel = None
    metrics_port: Annotated[
        Text, typer.Option(metavar="PORT", help="Serve Prometheus metrics on this port of 127.0.0.1.")
    ] = None
    database_url: DatabaseUrl = None


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
    options: WorkerOptions,
    processes: Annotated[
        int, typer.Option(min=1, max=1000, metavar="NUMBER", help="Number of worker processes.")
    ] = 1,
    shard: Annotated[
        Text, typer.Option(metavar="NAME", help="The shard to serve, one of HOLDFAST_SHARDS.")
    ] = None,
    all_shards: Annotated[
        bool, typer.Option("--all-shards", help="Serve all shards, each with worker processes of its own.")
    ] = False,
) -> None:
    """Run the tasks of an application until SIGTERM or Ctrl-C."""
    settings = given(options)
    if shard and (all_shards or options.database_url):
        raise typer.BadParameter("--shard cannot be combined with --all-shards or --database-url")
    if processes > 1 or all_shards:
        code = _run_many(processes, settings, all_shards=all_shards)
    else:
        app = App() if application is None else load_app(application)
        code = app.run_worker(**settings, **({} if shard is None else {"shard": shard}))
    _exit_within(EXIT_SECONDS, code)
    raise typer.Exit(code)


def _run_many(processes: int, options: dict[str, Any], *, all_shards: bool) -> int:
    from holdfast._telemetry.logs import configure, worker_log  # noqa: PLC0415 - other commands start faster
    from holdfast._worker.executors import check_executors  # noqa: PLC0415 - as above
    from holdfast._worker.fleet import supervise  # noqa: PLC0415 - as above

    settings = Settings.load(**options)
    if all_shards and not settings.shards:
        raise ConfigurationError("there are no shards to serve: HOLDFAST_SHARDS is not set")
    shards = list(settings.shards) if all_shards else []
    check_executors(settings)  # once here, not in every worker process
    configure(settings.log_format, settings.log_level)
    return supervise(
        processes * max(1, len(shards)),
        grace=settings.grace.total_seconds(),
        log=worker_log("supervisor"),
        metrics_port=settings.metrics_port,
        shards=shards,
    )


def _exit_within(seconds: float, code: int) -> None:
    """Exit even if handlers left threads running: Python would wait for them."""
    exiting = threading.Timer(seconds, os._exit, [code])
    exiting.daemon = True
    exiting.start()
