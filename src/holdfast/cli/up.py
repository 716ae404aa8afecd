"""holdfast up: run everything on this machine, with an example application."""

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.connection import DatabaseUrl
from holdfast.cli.frame import add_commands
from holdfast.cli.local_processes import Part
from holdfast.cli.local_stack import (
    GRACE_SECONDS,
    LocalStack,
    local_stack,
    missing_packages,
    not_installed,
    serve_all,
    short,
    until_stopped,
)
from holdfast.cli.setting_options import Text, TlsKey
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings

Port = Annotated[Text, typer.Option(metavar="PORT", help="Port on this machine; 0 chooses a free one.")]


def register(app: typer.Typer) -> None:
    add_commands(app, up)


def up(
    *,
    port: Port = None,
    tls: Annotated[
        bool,
        typer.Option("--tls/--no-tls", help="Serve TLS. Without --tls-cert, a certificate is generated."),
    ] = True,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate chain to use.")] = None,
    tls_key: TlsKey = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Run PostgreSQL, a worker, a dispatcher, the dashboard and an example application until Ctrl-C."""
    settings = Settings.load(web_port=port, database_url=database_url)
    given = (tls_cert, tls_key)
    if not tls and given != (None, None):
        raise ConfigurationError("--no-tls cannot be combined with a certificate")
    with until_stopped():
        _run_examples(settings, given, own=tls and given == (None, None))


def _run_examples(settings: Settings, given: tuple[Path | None, Path | None], *, own: bool) -> None:
    extras = ("embedded", "events", "web")[1 if settings.database_url else 0 :]
    missing = [extra for extra in extras if missing_packages(extra)]
    if missing:
        raise not_installed("up", "extras", missing, ",".join(missing))
    certificate: Path | None = None
    if own:
        from holdfast.server.certificate import own_certificate  # noqa: PLC0415 - an extra

        with_key, certificate = own_certificate(settings.home / "tls")
        given = (with_key, with_key)
    with local_stack("up", settings, *given) as stack:
        stack.set_environment(HOLDFAST_LOG_LEVEL="error", HOLDFAST_LOG_FORMAT="console")
        os.environ["HOLDFAST_WEB_SECRET"] = secrets.token_hex(32)
        from holdfast.cli.demo import start_examples, tasks  # noqa: PLC0415 - reads the settings
        from holdfast.cli.demo.web import pages  # noqa: PLC0415 - as above
        from holdfast.server import create_app  # noqa: PLC0415 - an extra

        web = create_app(tasks, is_local=True)
        web.mount("/demo", pages)
        events = settings.home / "events"
        events.mkdir(parents=True, exist_ok=True)
        worker = ("--queues", "demo,comms", "--heartbeat", "2s", "--grace", f"{GRACE_SECONDS:g}s")
        parts = (
            Part("worker", ("worker", "holdfast.cli.demo:tasks", *worker)),
            Part("dispatch", ("dispatch", "--directory", str(events))),
        )

        def welcome(token: str) -> str:
            start_examples()
            tasks.close()
            return _examples_text(stack, token, certificate)

        serve_all(stack, web, parts, welcome)


def _examples_text(stack: LocalStack, token: str, certificate: Path | None) -> str:
    lines = [
        "",
        f"  Example application  {stack.address}/demo/",
        f"  Dashboard            {stack.address}/login#{token}",
        "                       (this link logs you in)",
        f"  PostgreSQL           {stack.database}",
        "",
    ]
    if certificate is not None:
        lines += [
            "  Your browser will show a warning because the certificate was generated on this machine:",
            f"  {short(certificate)}",
            "",
        ]
    return "\n".join([*lines, "  Press Ctrl-C to stop everything.", ""])
