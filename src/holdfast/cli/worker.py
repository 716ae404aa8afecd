"""holdfast worker: run the tasks of an application."""

import os
import threading
from typing import Annotated

import typer

from holdfast.cli.app_loader import Application, load_app
from holdfast.cli.database import DatabaseUrl
from holdfast.settings import Settings

LEAVE_SECONDS = 3.0

# Text, whatever they mean: the settings themselves say what is allowed, with the name of the variable.
Text = str | None


def register(app: typer.Typer) -> None:
    app.command()(worker)


def worker(
    application: Application,
    *,
    queues: Annotated[Text, typer.Option(metavar="NAMES", help="Queues to serve: default,mail")] = None,
    prefixes: Annotated[
        Text, typer.Option(metavar="NAMES", help="Prefixes of the task types to serve: billing.,mail.")
    ] = None,
    concurrency: Annotated[Text, typer.Option(metavar="NUMBER", help="Tasks to run at once.")] = None,
    lease: Annotated[
        Text, typer.Option(metavar="DURATION", help="How long a task is held without a heartbeat.")
    ] = None,
    heartbeat: Annotated[
        Text, typer.Option(metavar="DURATION", help="How often leases are prolonged; at most half a lease.")
    ] = None,
    grace: Annotated[
        Text, typer.Option(metavar="DURATION", help="How long running tasks may go on after a signal.")
    ] = None,
    poll_interval: Annotated[
        Text, typer.Option(metavar="DURATION", help="How long to wait for a wake-up before looking.")
    ] = None,
    worker_id: Annotated[Text, typer.Option(metavar="NAME", help="Name of the worker.")] = None,
    log_format: Annotated[Text, typer.Option(metavar="FORMAT", help="console or json.")] = None,
    log_level: Annotated[Text, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = None,
    metrics_port: Annotated[
        Text, typer.Option(metavar="PORT", help="Serve Prometheus metrics on this port of 127.0.0.1.")
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, max=1000, metavar="NUMBER", help="Run so many workers under a supervisor.")
    ] = 1,
    database_url: DatabaseUrl = None,
) -> None:
    """Run the tasks of an application until it is asked to stop (SIGTERM, Ctrl-C)."""
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
    code = _run_many(processes, given) if processes > 1 else load_app(application).run_worker(**given)
    _leave_within(LEAVE_SECONDS, code)
    raise typer.Exit(code)


def _run_many(processes: int, given: dict[str, str]) -> int:
    from holdfast.logs import configure, worker_log  # noqa: PLC0415 - other commands start faster
    from holdfast.worker.fleet import supervise  # noqa: PLC0415 - as above
    from holdfast.worker.startup import check_settings  # noqa: PLC0415 - as above

    settings = Settings.load(**given)
    check_settings(settings)  # once here, and not by every worker that is started again and again
    configure(settings.log_format, settings.log_level)
    return supervise(
        processes,
        grace=settings.grace.total_seconds(),
        log=worker_log("supervisor"),
        metrics_port=settings.metrics_port,
    )


def _leave_within(seconds: float, code: int) -> None:
    """Python would wait for every thread that a handler has started and left behind."""
    leaving = threading.Timer(seconds, os._exit, [code])
    leaving.daemon = True
    leaving.start()
