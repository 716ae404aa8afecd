"""holdfast postgres: manage the embedded PostgreSQL."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.output import Json
from holdfast.postgres import EmbeddedServer, ServerStatus
from holdfast.settings import Settings

NOT_RUNNING = 3  # as with pg_ctl and systemctl

Home = Annotated[
    Path | None,
    typer.Option("--home", readable=False, help="Data directory. Default: HOLDFAST_HOME, or .holdfast."),
]

commands = typer.Typer(help="Manage the embedded PostgreSQL.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="postgres")


@commands.command()
def start(home: Home = None, as_json: Json = False) -> None:
    """Start the server if it is not running. It runs until it is stopped."""
    server = _server(home)
    server.start()
    _show(server.status(), as_json)


@commands.command()
def stop(home: Home = None, as_json: Json = False) -> None:
    """Stop the server. Open transactions are rolled back."""
    server = _server(home)
    stopped = server.stop()
    if as_json:
        typer.echo(json.dumps({"stopped": stopped}))
    else:
        typer.echo("PostgreSQL stopped" if stopped else "PostgreSQL was not running")


@commands.command()
def status(home: Home = None, as_json: Json = False) -> None:
    """Show whether the server is running. Exit code: 0 if it is, 3 if not."""
    found = _server(home).status()
    _show(found, as_json)
    if not found.running:
        raise typer.Exit(NOT_RUNNING)


@commands.command()
def url(home: Home = None) -> None:
    """Print the URL of the server, and start it if it is not running."""
    typer.echo(_server(home).start())


def _server(home: Path | None) -> EmbeddedServer:
    return EmbeddedServer(Settings.load(home=home).home)


def _show(status: ServerStatus, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(status), default=str))
    elif status.running:
        typer.echo(
            f"PostgreSQL {status.version} is running (process {status.pid}) on {status.data}\n{status.url}"
        )
    else:
        typer.echo(f"PostgreSQL {status.version} is not running on {status.data}")
