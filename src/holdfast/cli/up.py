"""holdfast up: run everything on this machine, with an example application."""

import os
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

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
    until_stopped,
)
from holdfast.cli.setting_options import Text
from holdfast.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

Port = Annotated[Text, typer.Option(metavar="PORT", help="Port on this machine; 0 chooses a free one.")]


def register(app: typer.Typer) -> None:
    add_commands(app, up)


def up(*, port: Port = None, database_url: DatabaseUrl = None) -> None:
    """Run PostgreSQL, a worker, a dispatcher, the dashboard and an example application until Ctrl-C."""
    settings = Settings.load(web_port=port, database_url=database_url)
    with until_stopped():
        _run_examples(settings)


def _run_examples(settings: Settings) -> None:
    extras = ("embedded", "events", "web")[1 if settings.database_url else 0 :]
    missing = [extra for extra in extras if missing_packages(extra)]
    if missing:
        raise not_installed("up", "extras", missing, ",".join(missing))
    with local_stack("up", settings) as stack:
        stack.set_environment(HOLDFAST_LOG_LEVEL="error", HOLDFAST_LOG_FORMAT="console")
        os.environ["HOLDFAST_WEB_SECRET"] = secrets.token_hex(32)
        events = settings.home / "events"
        events.mkdir(parents=True, exist_ok=True)
        worker = ("--queues", "demo,comms", "--heartbeat", "2s", "--grace", f"{GRACE_SECONDS:g}s")
        parts = (
            Part("worker", ("worker", "holdfast.cli.demo:tasks", *worker)),
            Part("dispatch", ("dispatch", "--directory", str(events))),
        )
        with _served_over_tls(settings) as encrypted:

            def welcome(token: str) -> str:
                from holdfast.cli.demo import start_examples, tasks  # noqa: PLC0415 - reads the settings

                start_examples()
                tasks.close()
                return _examples_text(stack, token, encrypted)

            serve_all(stack, _example_pages(), parts, welcome)


def _example_pages() -> "FastAPI":
    """The dashboard, and below /demo the pages of the example application."""
    from holdfast.cli.demo import tasks  # noqa: PLC0415 - reads the settings
    from holdfast.cli.demo.web import pages  # noqa: PLC0415 - as above
    from holdfast.server import create_app  # noqa: PLC0415 - an extra

    web = create_app(tasks, is_local=True)
    web.mount("/demo", pages)
    return web


@contextmanager
def _served_over_tls(settings: Settings) -> Iterator[str]:
    """The same pages on the next port, in a thread. Yields their address."""
    from holdfast.server.certificate import own_certificate  # noqa: PLC0415 - an extra
    from holdfast.server.web_server import (  # noqa: PLC0415 - as above
        ListenAddress,
        address_of,
        bind,
        make_server,
    )

    key = own_certificate(settings.home / "tls").with_key
    listen = ListenAddress("127.0.0.1", settings.web_port and settings.web_port + 1, key, key)
    with bind(listen, settings) as listener:
        address = address_of(listen, listener)
        server = make_server(_example_pages(), listen, listener)
        thread = threading.Thread(target=server.run, name="tls")
        thread.start()
        try:
            yield address
        finally:
            server.handle_exit(signal.SIGTERM, None)
            thread.join()


def _examples_text(stack: LocalStack, token: str, encrypted: str) -> str:
    lines = [
        "",
        f"  Example application  {stack.address}/demo/",
        "                       (start ten orders there, and look at them in the dashboard)",
        f"  Dashboard            {stack.address}/login#{token}",
        "                       (this link logs you in)",
        f"  Example over TLS     {encrypted}/demo/",
        "                       (its login waits over one encrypted connection. Your browser will show a",
        "                       warning, because the certificate was generated on this machine)",
        f"  PostgreSQL           {stack.database}",
        "",
        "  Press Ctrl-C to stop everything.",
        "",
    ]
    return "\n".join(lines)
