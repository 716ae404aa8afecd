"""holdfast worker: run a worker. Imports nothing that a running worker does not need, such as Rich."""

import os
import threading
from typing import Annotated

import typer

from holdfast.app import App
from holdfast.cli.app_loader import load_app
from holdfast.cli.connection import DatabaseUrl
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings

EXIT_SECONDS = 3.0

# Plain text: the settings validate the values and name the variable in errors.
TextOption = str | None


def register(app: typer.Typer) -> None:
    app.command()(worker)


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
    shard: Annotated[
        TextOption, typer.Option(metavar="NAME", help="The shard to serve, one of HOLDFAST_SHARDS.")
    ] = None,
    all_shards: Annotated[
        bool, typer.Option("--all-shards", help="Serve all shards, each with worker processes of its own.")
    ] = False,
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
    if shard and (all_shards or database_url):
        raise typer.BadParameter("--shard cannot be combined with --all-shards or --database-url")
    if processes > 1 or all_shards:
        code = _run_many(processes, given, all_shards=all_shards)
    elif shard:
        code = (App() if application is None else load_app(application)).run_worker(shard=shard, **given)
    else:
        code = (App() if application is None else load_app(application)).run_worker(**given)
    _exit_within(EXIT_SECONDS, code)
    raise typer.Exit(code)


def _run_many(processes: int, given: dict[str, str], *, all_shards: bool) -> int:
    from holdfast.logs import configure, worker_log  # noqa: PLC0415 - other commands start faster
    from holdfast.worker.fleet import supervise  # noqa: PLC0415 - as above
    from holdfast.worker.startup import check_settings  # noqa: PLC0415 - as above

    settings = Settings.load(**given)
    if all_shards and not settings.shards:
        raise ConfigurationError("there are no shards to serve: HOLDFAST_SHARDS is not set")
    shards = list(settings.shards) if all_shards else []
    check_settings(settings)  # once here, not in every worker process
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
