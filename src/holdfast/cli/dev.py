"""holdfast dev: run an application on this machine, with a worker that reloads changed code."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.app_loader import Application, load_app
from holdfast.cli.code_changes import MAX_DIRECTORIES, CodeChanges, loaded_directories
from holdfast.cli.connection import DatabaseUrl
from holdfast.cli.frame import add_commands
from holdfast.cli.local_processes import STOP_SECONDS, Part
from holdfast.cli.local_stack import (
    GRACE_SECONDS,
    LocalStack,
    local_stack,
    missing_packages,
    not_installed,
    serve_all,
    until_stopped,
)
from holdfast.cli.up import Port
from holdfast.errors import HoldfastError
from holdfast.settings import Settings

_DESCRIBE = "from holdfast.cli.dev import describe_application; describe_application()"


def register(app: typer.Typer) -> None:
    add_commands(app, dev)


def dev(application: Application, *, port: Port = None, database_url: DatabaseUrl = None) -> None:
    """Run PostgreSQL, a worker that reloads changed code, a dispatcher and the dashboard until Ctrl-C."""
    with until_stopped():
        _run_application(application, port, database_url)


def _run_application(application: str, port: str | None, database_url: str | None) -> None:
    _check_packages("events", "web", also=("watchfiles",))
    loaded = ask_application(application)
    settings = Settings.load(web_port=port, database_url=database_url or loaded["database_url"])
    if settings.database_url is None:
        _check_packages("embedded")
    grace = settings.grace.total_seconds() if "grace" in settings.model_fields_set else GRACE_SECONDS
    worker = ["worker", application, "--grace", f"{grace:g}s"]
    if database_url is not None:  # overrides the address in the code of the application
        worker += ["--database-url", database_url]
    parts = (
        Part("worker", tuple(worker), reloads=True),
        Part("mail", ("worker", "--queues", "comms", "--worker-id", "mail", "--log-level", "error")),
        Part("dispatch", ("dispatch",)),
    )
    with local_stack("dev", settings) as stack:
        secret = {} if settings.web_secret else {"HOLDFAST_WEB_SECRET": secrets.token_hex(32)}
        stack.set_environment(HOLDFAST_LOG_FORMAT="console", **secret)
        # Bytecode is matched by size and second: two edits within a second would run the code of the first.
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        from holdfast.server import create_app  # noqa: PLC0415 - an extra

        changes = CodeChanges(Path.cwd(), loaded["directories"])
        if not changes.complete:
            stack.log.write("worker", f"Only the first {MAX_DIRECTORIES} directories here are watched.")
        serve_all(
            stack,
            create_app(settings=Settings.load(), is_local=True),
            parts,
            lambda token: _application_text(stack, application, token),
            stop_seconds=grace + STOP_SECONDS,
            changes=changes,
        )


def _check_packages(*extras: str, also: Sequence[str] = ()) -> None:
    missing = missing_packages(*extras, also=also)
    if missing:
        raise not_installed("dev", "packages", missing, "dev")


def ask_application(application: str) -> dict[str, Any]:
    """The database of an application and the directories of its code, asked in a process of its own.

    This process must not import the application: it could not load it again.
    """
    reading, writing = os.pipe()
    command = [sys.executable, "-c", _DESCRIBE, application, str(writing)]
    with (
        open(reading, encoding="utf-8") as answer,  # noqa: PTH123 - a file descriptor
        subprocess.Popen(command, pass_fds=[writing], process_group=0, stdin=subprocess.DEVNULL) as child,
    ):
        os.close(writing)
        try:
            text = answer.read()
        except BaseException:
            child.kill()
            raise
        code = child.wait()
    if not text:
        raise typer.Exit(code or 1)  # the error has been printed
    found: dict[str, Any] = json.loads(text)
    return found


def describe_application() -> None:
    """The other side of `ask_application`."""
    try:
        app = load_app(sys.argv[1])
        found = {
            "database_url": app.settings.database_url,
            "directories": loaded_directories(Path.cwd()),
        }
    except HoldfastError as error:
        from holdfast.cli.output import print_error  # noqa: PLC0415 - loads Rich

        print_error(error)
        sys.exit(error.exit_code)
    os.write(int(sys.argv[2]), json.dumps(found).encode())


def _application_text(stack: LocalStack, application: str, token: str) -> str:
    lines = [
        "",
        f"  Worker      {application}, started again when a Python file changes",
        f"  Dashboard   {stack.address}/login#{token}",
        "              (this link logs you in)",
        f"  Mailbox     {stack.address}/mailbox",
        f"  PostgreSQL  {stack.database}",
        "",
        "  Press Ctrl-C to stop everything.",
        "",
    ]
    return "\n".join(lines)
