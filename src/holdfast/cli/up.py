"""holdfast up: everything on this machine, with an example application to watch."""

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import psycopg
import typer

from holdfast.cli.database import DatabaseUrl
from holdfast.engine import Engine
from holdfast.errors import translate
from holdfast.http.access import hash_of, new_token
from holdfast.postgres import EmbeddedServer
from holdfast.schema import migrate
from holdfast.settings import Settings

# Text, whatever they mean: the settings themselves say what is allowed, with the name of the variable.
Text = str | None

TOKEN_LIFE = timedelta(days=1)
LEAVE_SECONDS = 15.0
_COMMAND = [sys.executable, "-c", "from holdfast.cli import main; main()"]


def register(app: typer.Typer) -> None:
    app.command()(up)


def up(
    *,
    port: Annotated[Text, typer.Option(metavar="PORT", help="On which port of this machine.")] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate chain, to serve TLS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key of the certificate.")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Start PostgreSQL, a worker, a dispatcher, the dashboard and an example application, until Ctrl-C."""
    settings = Settings.load(web_port=port, database_url=database_url)
    with _database(settings) as url:
        migrate(url)
        _serve(settings, url, tls_cert, tls_key)
    typer.echo("Everything has stopped.", err=True)


def _serve(settings: Settings, url: str, certificate: Path | None, key: Path | None) -> None:
    from holdfast.http.server import Listen, address_of, bind, check, make_server  # noqa: PLC0415 - an extra

    listen = Listen("127.0.0.1", settings.web_port, certificate, key)
    check(listen, asks_for_login=True, hosts=())
    with bind(listen) as bound:
        address = address_of(listen, bound)
        # For this process and those that it starts: the example application reads its settings from here.
        os.environ |= {
            "DATABASE_URL": url,
            "HOLDFAST_WEB_URL": address,
            "HOLDFAST_WEB_SECRET": secrets.token_hex(32),
            "HOLDFAST_SUPERVISOR": str(os.getpid()),
        }
        from holdfast.demo import flaky, poison, report, tasks  # noqa: PLC0415 - reads the settings
        from holdfast.demo.web import pages  # noqa: PLC0415 - as above
        from holdfast.http import create_app  # noqa: PLC0415 - an extra

        web = create_app(tasks)
        web.mount("/demo", pages)
        server = make_server(web, listen)
        token = _make_token(url)
        worker = [
            "worker",
            "holdfast.demo:tasks",
            "--queues",
            "demo,comms",
            "--heartbeat",
            "2s",
            "--grace",
            "5s",
        ]
        with _running(worker), _running(["dispatch"]):
            report.enqueue(pages=30)
            flaky.enqueue()
            poison.enqueue()
            tasks.close()
            typer.echo(
                f"\n  Dashboard            {address}/login#{token}"
                f"\n  Example application  {address}/demo/\n\n  Ctrl-C ends everything.\n"
            )
            server.run(sockets=[bound])


@contextlib.contextmanager
def _database(settings: Settings) -> Iterator[str]:
    """The one that was given, or the embedded one, which is stopped again if it was started here."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    server = EmbeddedServer(settings.home)
    found_running = server.running
    try:
        yield server.start()
    finally:
        if not found_running:
            server.stop()


@contextlib.contextmanager
def _running(arguments: list[str]) -> Iterator[None]:
    """A command of ours beside this one. It has a group of its own, so that Ctrl-C comes through us."""
    with subprocess.Popen([*_COMMAND, *arguments], process_group=0) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _make_token(url: str) -> str:
    token = new_token()
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            Engine(connection).create_token("holdfast up", ["admin"], hash_of(token), TOKEN_LIFE)
    except psycopg.Error as error:
        raise translate(error) from error
    return token
