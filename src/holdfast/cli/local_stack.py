"""What `holdfast up` and `holdfast dev` share: database, HTTP server and child processes, until a signal."""

import contextlib
import importlib.metadata
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import typer

from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import Choice, migrate
from holdfast._telemetry.logs import configure
from holdfast.cli.code_changes import CodeChanges
from holdfast.cli.local_processes import STOP_SECONDS, LocalProcesses, Log, Part
from holdfast.cli.login_token import login_token
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from holdfast.server.listener import Listener
    from holdfast.server.web_server import ListenAddress

GRACE_SECONDS = 5.0
_ENDING = (signal.SIGINT, signal.SIGTERM)


class AskedToStop(BaseException):
    """A signal arrived before the HTTP server handled signals itself."""


@dataclass(frozen=True)
class LocalStack:
    """What runs on this machine."""

    command: str
    settings: Settings
    listen: "ListenAddress"
    listener: "Listener"
    url: str
    log: Log = field(default_factory=Log)

    @property
    def address(self) -> str:
        from holdfast.server.web_server import address_of  # noqa: PLC0415 - an extra

        return address_of(self.listen, self.listener)

    @property
    def database(self) -> str:
        """Where the database is, without a password."""
        return "DATABASE_URL" if self.settings.database_url else f"in {short(self.settings.home)}"

    def set_environment(self, **defaults: str) -> None:
        """For this process and its child processes. The defaults apply unless the variables are set."""
        os.environ |= {name: os.environ.get(name) or value for name, value in defaults.items()}
        os.environ |= {
            "DATABASE_URL": self.url,
            "HOLDFAST_HOME": str(self.settings.home),
            "HOLDFAST_WEB_URL": self.address,
            "HOLDFAST_SUPERVISOR": str(os.getpid()),
            "HOLDFAST_EMAIL_PROVIDER": "mailbox",
            "HOLDFAST_SMS_PROVIDER": "mailbox",
        }


@contextlib.contextmanager
def local_stack(command: str, settings: Settings) -> Iterator[LocalStack]:
    """The listening socket and the migrated database."""
    from holdfast.server.web_server import ListenAddress, bind  # noqa: PLC0415 - an extra

    listen = ListenAddress("127.0.0.1", settings.web_port)
    # Bind first: a port in use is the most common problem, and nothing has been started yet.
    with bind(listen, settings) as listener, _database(settings) as url:
        single = settings.database_url is not None and settings.single_login
        migrate(url, single_login=single, choice=Choice.of(settings))
        yield LocalStack(command, settings, listen, listener, url)


def serve_all(
    stack: LocalStack,
    web: "FastAPI",
    parts: tuple[Part, ...],
    welcome: Callable[[str], str],
    *,
    stop_seconds: float = STOP_SECONDS,
    changes: CodeChanges | None = None,
) -> None:
    from holdfast.server.web_server import make_server  # noqa: PLC0415 - an extra

    with contextlib.redirect_stderr(stack.log.stream("web")):
        configure("console", os.environ.get("HOLDFAST_LOG_LEVEL") or "info")
    for library in ("uvicorn.error", "watchfiles"):  # every start and every event
        logging.getLogger(library).setLevel(logging.WARNING)
    server = make_server(web, stack.listen, stack.listener)
    processes = LocalProcesses(
        parts,
        stack.log,
        stop_all=lambda: server.handle_exit(signal.SIGTERM, None),
        stop_seconds=stop_seconds,
    )

    def watch() -> None:
        for paths in changes or ():
            processes.changed([short(Path(path)) for path in paths])

    with login_token(stack.url, stack.command) as token, processes.running():
        threading.Thread(target=watch, name="changes", daemon=True).start()
        _say(welcome(token), err=False)
        try:
            server.run()
        finally:
            if changes is not None:
                changes.stop()
        _ignore_signals()
        _say("Stopping …")
    if processes.lost:
        raise HoldfastError(f"{processes.lost[0]}, so everything was stopped")


def missing_packages(*extras: str, also: Sequence[str] = ()) -> list[str]:
    """The packages of these extras, and further ones, that are not installed."""
    needed = {one for extra in extras for one in _packages_of(extra)}.union(also)
    return sorted(one for one in needed if not _is_installed(one))


def not_installed(command: str, kind: str, missing: list[str], install: str) -> ConfigurationError:
    return ConfigurationError(
        f"{command} needs {kind} that are not installed: {', '.join(missing)}",
        hint=f"Run pip install 'holdfast-pg[{install}]'.",
    )


def _packages_of(extra: str) -> list[str]:
    needed = re.compile(rf"""([\w.-]+).*;.*\bextra\s*==\s*["']{extra}["']""")
    lines = importlib.metadata.requires("holdfast-pg") or []
    return [match[1] for line in lines if (match := needed.match(line))]


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@contextlib.contextmanager
def _database(settings: Settings) -> Iterator[str]:
    """The configured database, or the embedded server, which is stopped if it was started here."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    server = EmbeddedServer(settings.home)
    found_running = server.running
    try:
        yield server.start()
    finally:
        _ignore_signals()
        if not found_running:
            server.stop()


@contextlib.contextmanager
def until_stopped() -> Iterator[None]:
    try:
        with _signals():
            yield
    except AskedToStop:
        pass
    _say("Everything has stopped.")


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Stop everything in order on Ctrl-C, SIGTERM and, except under nohup, when the terminal closes."""

    def stop(_: int, __: FrameType | None) -> None:
        _ignore_signals()
        raise AskedToStop

    def hang_up(_: int, __: FrameType | None) -> None:
        signal.raise_signal(signal.SIGTERM)  # handled by us, or by the server while it runs

    before = {number: signal.signal(number, stop) for number in _ENDING}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, hang_up)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    """Do not interrupt the shutdown. Each of its steps has a timeout."""
    for number in (*_ENDING, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _say(text: str, *, err: bool = True) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        typer.echo(text, err=err)


def short(path: Path) -> str:
    """Relative to the working directory, if it is inside."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
