"""holdfast up: everything on this machine, with an example application to watch."""

import contextlib
import importlib.metadata
import os
import platform
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, TypeVar

import psycopg
import typer

from holdfast.cli.database import DatabaseUrl
from holdfast.engine import Engine, access
from holdfast.errors import ConfigurationError, HoldfastError, translate
from holdfast.http.access import hash_of, new_token
from holdfast.postgres import EmbeddedServer
from holdfast.schema import migrate
from holdfast.settings import Settings

if TYPE_CHECKING:
    import socket

    from holdfast.http.server import ListenAddress, Server

T = TypeVar("T")

# Text, whatever they mean: the settings themselves say what is allowed, with the name of the variable.
Text = str | None

TOKEN_LIFE = timedelta(minutes=5)
RENEW_SECONDS = 60.0
LEAVE_SECONDS = 15.0
_COMMAND = [sys.executable, "-c", "from holdfast.cli import main; main()"]
_ENDING = (signal.SIGINT, signal.SIGTERM)


class _AskedToStop(BaseException):
    """Before the server took the signals over."""


def register(app: typer.Typer) -> None:
    app.command()(up)


def up(
    *,
    port: Annotated[
        Text, typer.Option(metavar="PORT", help="On which port of this machine; 0 takes a free one.")
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls/--no-tls", help="Serve TLS, with a certificate made here if none is given.")
    ] = True,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="A certificate chain to use.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key of the certificate.")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Start PostgreSQL, a worker, a dispatcher, the dashboard and an example application, until Ctrl-C."""
    settings = Settings.load(web_port=port, database_url=database_url)
    given = (tls_cert, tls_key)
    if not tls and given != (None, None):
        raise ConfigurationError("--no-tls and a certificate exclude each other")
    try:
        with _signals():
            _bring_up(settings, given, own=tls and given == (None, None))
    except _AskedToStop:
        pass
    _say("Everything has stopped.")


def _bring_up(settings: Settings, given: tuple[Path | None, Path | None], *, own: bool) -> None:
    _check_extras("web", "events", *(() if settings.database_url else ("embedded",)))
    from holdfast.http.server import ListenAddress, bind, check_exposure  # noqa: PLC0415 - an extra

    certificate: Path | None = None
    if own:
        from holdfast.http.certificate import own_certificate  # noqa: PLC0415 - as above

        with_key, certificate = own_certificate(settings.home / "tls")
        given = (with_key, with_key)
    listen = ListenAddress("127.0.0.1", settings.web_port, *given)
    check_exposure(listen, asks_for_login=True, hosts=())
    # First of all: a port that is taken is the most common trouble, and nothing has been started yet.
    with bind(listen) as bound, _database(settings) as url:
        migrate(url)
        _serve(settings, url, listen, bound, certificate)


def _check_extras(*extras: str) -> None:
    """Refuse to begin where a part would fail later because its packages are not installed."""
    missing = sorted(extra for extra in extras if not all(map(_is_installed, _packages_of(extra))))
    if missing:
        raise ConfigurationError(
            f"up needs extras that are not installed: {', '.join(missing)}",
            hint=f"Run pip install 'holdfast[{','.join(missing)}]'.",
        )


def _packages_of(extra: str) -> list[str]:
    needed = re.compile(rf"""([\w.-]+).*;.*\bextra\s*==\s*["']{extra}["']""")
    lines = importlib.metadata.requires("holdfast") or []
    return [match[1] for line in lines if (match := needed.match(line))]


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _serve(
    settings: Settings, url: str, listen: "ListenAddress", bound: "socket.socket", certificate: Path | None
) -> None:
    from holdfast.http.server import address_of, make_server  # noqa: PLC0415 - an extra

    address = address_of(listen, bound)
    # For this process and those that it starts: the example application reads its settings from here.
    os.environ |= {
        "DATABASE_URL": url,
        "HOLDFAST_HOME": str(settings.home),
        "HOLDFAST_WEB_URL": address,
        "HOLDFAST_WEB_SECRET": secrets.token_hex(32),
        "HOLDFAST_SUPERVISOR": str(os.getpid()),
        "HOLDFAST_EMAIL_PROVIDER": "mailbox",
        "HOLDFAST_SMS_PROVIDER": "mailbox",
        "HOLDFAST_LOG_LEVEL": os.environ.get("HOLDFAST_LOG_LEVEL") or "error",
    }
    from holdfast.demo import begin, tasks  # noqa: PLC0415 - reads the settings
    from holdfast.demo.web import pages  # noqa: PLC0415 - as above
    from holdfast.http import create_app  # noqa: PLC0415 - an extra

    web = create_app(tasks)
    web.mount("/demo", pages)
    server = make_server(web, listen)
    crew = Crew(server)
    events = settings.home / "events"
    events.mkdir(parents=True, exist_ok=True)
    with (
        _token(url) as token,
        crew.running(
            "worker",
            *("holdfast.demo:tasks", "--queues", "demo,comms", "--heartbeat", "2s", "--grace", "5s"),
        ),
        crew.running("dispatch", "--directory", str(events)),
    ):
        begin()
        tasks.close()
        _say(_greeting(address, token, certificate, settings), err=False)
        server.run(sockets=[bound])
        _ignore_signals()
        _say("Stopping …")
    if crew.lost:
        raise HoldfastError(f"{crew.lost[0]} ended, so everything was stopped")


def _greeting(address: str, token: str, certificate: Path | None, settings: Settings) -> str:
    where = "the one of DATABASE_URL" if settings.database_url else f"in {_short(settings.home)}"
    lines = [
        "",
        f"  Example application  {address}/demo/",
        f"  Dashboard            {address}/login#{token}",
        "                       (this link logs you in, until it is stopped)",
        f"  PostgreSQL           {where}",
        "",
    ]
    if certificate is not None:
        lines += [
            "  Your browser will warn of the certificate, because it was made on this machine:",
            f"  {_short(certificate)}",
            "",
        ]
    return "\n".join([*lines, "  Ctrl-C ends everything.", ""])


@dataclass
class Crew:
    """The commands of ours that run beside this one. If one of them ends by itself, all end."""

    server: "Server"
    leaving: threading.Event = field(default_factory=threading.Event)
    lost: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def running(self, *command: str) -> Iterator[None]:
        """It has a group of its own, so that Ctrl-C comes through us."""
        with subprocess.Popen([*_COMMAND, *command], process_group=0) as process:
            watch = threading.Thread(target=self._watch, args=(process, command[0]), daemon=True)
            watch.start()
            try:
                yield
            finally:
                self.leaving.set()
                _end(process)

    def _watch(self, process: "subprocess.Popen[bytes]", name: str) -> None:
        code = process.wait()
        if not self.leaving.is_set():
            self.lost.append(f"holdfast {name} (exit code {code})")
            self.server.handle_exit(signal.SIGTERM, None)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


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
        _ignore_signals()
        if not found_running:
            server.stop()


@contextlib.contextmanager
def _token(url: str) -> Iterator[str]:
    """Good while everything runs, and for a few minutes if this process is killed."""
    token, renewing = new_token(), threading.Event()
    _with_engine(url, _revoke_left_behind)
    token_id = _with_engine(
        url,
        lambda it: it.run(
            access.create_token(_token_name(os.getpid()), ["admin"], hash_of(token), TOKEN_LIFE)
        ),
    )

    def renew() -> None:
        while not renewing.wait(RENEW_SECONDS):
            with contextlib.suppress(HoldfastError):  # the next time comes before it ends
                _with_engine(url, lambda it: it.run(access.renew_token(token_id, TOKEN_LIFE)))

    thread = threading.Thread(target=renew, name="renew", daemon=True)
    thread.start()
    try:
        yield token
    finally:
        renewing.set()
        thread.join()
        with contextlib.suppress(HoldfastError):  # it expires by itself
            _with_engine(url, lambda it: it.run(access.revoke_token(token_id, "holdfast up has ended")))


def _token_name(pid: int) -> str:
    return f"holdfast up on {platform.node()[:60]}, process {pid}"


def _revoke_left_behind(engine: Engine) -> None:
    """Tokens of processes of this machine that were killed."""
    for token in engine.run(access.access_tokens()):
        found = re.fullmatch(r"holdfast up on .*, process (\d+)", token.name)
        if found and token.good and token.name == _token_name(int(found[1])) and not _is_alive(int(found[1])):
            engine.run(access.revoke_token(token.token_id, "its holdfast up was killed"))


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():  # the number came round again
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _with_engine(url: str, work: Callable[[Engine], T]) -> T:
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            return work(Engine(connection))
    except psycopg.Error as error:
        raise translate(error) from error


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Ctrl-C, SIGTERM and, unless under nohup, a terminal that is closed end everything in order."""

    def stop(_: int, __: FrameType | None) -> None:
        _ignore_signals()
        raise _AskedToStop

    def hang_up(_: int, __: FrameType | None) -> None:
        signal.raise_signal(signal.SIGTERM)  # to us, or to the server while it runs

    before = {number: signal.signal(number, stop) for number in _ENDING}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, hang_up)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    """What is already ending is not disturbed. Every step of it has its time."""
    for number in (*_ENDING, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _say(text: str, *, err: bool = True) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        typer.echo(text, err=err)


def _short(path: Path) -> str:
    """From here, where it is below."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
