"""holdfast postgres: manage the embedded PostgreSQL."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast._install.postgres.embedded_server import EmbeddedServer, ServerStatus
from holdfast.cli.frame import add_commands, group
from holdfast.cli.report import Report
from holdfast.settings import Settings

NOT_RUNNING = 3  # as with pg_ctl and systemctl

Home = Annotated[
    Path | None,
    typer.Option("--home", readable=False, help="Data directory. Default: HOLDFAST_HOME, or .holdfast."),
]


def register(app: typer.Typer) -> None:
    add_commands(group(app, "postgres", "Manage the embedded PostgreSQL."), start, stop, status, url)


def start(home: Home = None) -> Report:
    """Start the server if it is not running. It runs until it is stopped."""
    server = _server(home)
    server.start()
    return _report(server.status())


def stop(home: Home = None) -> Report:
    """Stop the server. Open transactions are rolled back."""
    stopped = _server(home).stop()
    return Report({"stopped": stopped}, "PostgreSQL stopped" if stopped else "PostgreSQL was not running")


def status(home: Home = None) -> Report:
    """Show whether the server is running. Exit code: 0 if it is, 3 if not."""
    found = _server(home).status()
    return _report(found, exit_code=0 if found.running else NOT_RUNNING)


def url(home: Home = None) -> Report:
    """Print the URL of the server, and start it if it is not running."""
    url = _server(home).start()
    return Report({"url": url}, url)


def _server(home: Path | None) -> EmbeddedServer:
    return EmbeddedServer(Settings.load(home=home).home)


def _report(status: ServerStatus, exit_code: int = 0) -> Report:
    where = f"is running (process {status.pid}) on" if status.running else "is not running on"
    shown = [f"PostgreSQL {status.version} {where} {status.data}", *([status.url] if status.running else [])]
    return Report(status, *shown, exit_code=exit_code)
