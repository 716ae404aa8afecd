"""holdfast postgres: the embedded server."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from holdfast.postgres import EmbeddedServer, ServerStatus
from holdfast.settings import Settings

NOT_RUNNING = 3  # as pg_ctl and systemctl have it

Home = Annotated[
    Path | None,
    typer.Option("--home", readable=False, help="Where the data is; else HOLDFAST_HOME or .holdfast."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

commands = typer.Typer(help="The embedded PostgreSQL.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="postgres")


@commands.command()
def start(home: Home = None, as_json: Json = False) -> None:
    """Start it if it is not running. It keeps running until it is stopped."""
    server = _server(home)
    server.start()
    _show(server.status(), as_json)


@commands.command()
def stop(home: Home = None, as_json: Json = False) -> None:
    """Stop it and wait until it is gone. Open transactions are rolled back."""
    server = _server(home)
    stopped = server.stop()
    if as_json:
        typer.echo(json.dumps({"stopped": stopped}))
    else:
        typer.echo("PostgreSQL has stopped" if stopped else "PostgreSQL was not running")


@commands.command()
def status(home: Home = None, as_json: Json = False) -> None:
    """Say whether it is running: exit code 0 if so, 3 if not."""
    found = _server(home).status()
    _show(found, as_json)
    if not found.running:
        raise typer.Exit(NOT_RUNNING)


@commands.command()
def url(home: Home = None) -> None:
    """Print its address and nothing else, starting it first if it is not running."""
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
