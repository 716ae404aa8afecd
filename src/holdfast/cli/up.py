"""holdfast up: run everything on this machine, with an example application."""

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

from holdfast.cli.connection import DatabaseUrl
from holdfast.engine import Engine, access
from holdfast.errors import ConfigurationError, HoldfastError, translate
from holdfast.http.access import hash_of, new_token
from holdfast.postgres import EmbeddedServer
from holdfast.schema import migrate
from holdfast.settings import Settings

if TYPE_CHECKING:
    import socket

    from holdfast.http.web_server import HttpServer, ListenAddress

T = TypeVar("T")

# Plain text: the settings validate the values and name the variable in errors.
Text = str | None

TOKEN_LIFE = timedelta(minutes=5)
RENEW_SECONDS = 60.0
STOP_SECONDS = 15.0
_COMMAND = [sys.executable, "-c", "from holdfast.cli import main; main()"]
_ENDING = (signal.SIGINT, signal.SIGTERM)


class _AskedToStop(BaseException):
    """A signal arrived before the HTTP server handled signals itself."""


def register(app: typer.Typer) -> None:
    app.command()(up)


def up(
    *,
    port: Annotated[
        Text, typer.Option(metavar="PORT", help="Port on this machine; 0 chooses a free one.")
    ] = None,
    tls: Annotated[
        bool,
        typer.Option("--tls/--no-tls", help="Serve TLS. Without --tls-cert, a certificate is generated."),
    ] = True,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate chain to use.")] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Private key of the certificate.")
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Run PostgreSQL, a worker, a dispatcher, the dashboard and an example application until Ctrl-C."""
    settings = Settings.load(web_port=port, database_url=database_url)
    given = (tls_cert, tls_key)
    if not tls and given != (None, None):
        raise ConfigurationError("--no-tls cannot be combined with a certificate")
    try:
        with _signals():
            _run_all(settings, given, own=tls and given == (None, None))
    except _AskedToStop:
        pass
    _say("Everything has stopped.")


def _run_all(settings: Settings, given: tuple[Path | None, Path | None], *, own: bool) -> None:
    _check_extras("web", "events", *(() if settings.database_url else ("embedded",)))
    from holdfast.http.web_server import ListenAddress, bind, check_exposure  # noqa: PLC0415 - an extra

    certificate: Path | None = None
    if own:
        from holdfast.http.certificate import own_certificate  # noqa: PLC0415 - as above

        with_key, certificate = own_certificate(settings.home / "tls")
        given = (with_key, with_key)
    listen = ListenAddress("127.0.0.1", settings.web_port, *given)
    check_exposure(listen, asks_for_login=True, hosts=())
    # Bind first: a port in use is the most common problem, and nothing has been started yet.
    with bind(listen) as bound, _database(settings) as url:
        migrate(url)
        _serve(settings, url, listen, bound, certificate)


def _check_extras(*extras: str) -> None:
    """Fail early if the packages of a part are not installed."""
    missing = sorted(extra for extra in extras if not all(map(_is_installed, _packages_of(extra))))
    if missing:
        raise ConfigurationError(
            f"up needs extras that are not installed: {', '.join(missing)}",
            hint=f"Run pip install 'holdfast-pg[{','.join(missing)}]'.",
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


def _serve(
    settings: Settings, url: str, listen: "ListenAddress", bound: "socket.socket", certificate: Path | None
) -> None:
    from holdfast.http.web_server import address_of, make_server  # noqa: PLC0415 - an extra

    address = address_of(listen, bound)
    # For this process and its child processes: the example application reads its settings from here.
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
    from holdfast.demo import start_examples, tasks  # noqa: PLC0415 - reads the settings
    from holdfast.demo.web import pages  # noqa: PLC0415 - as above
    from holdfast.http import create_app  # noqa: PLC0415 - an extra

    web = create_app(tasks)
    web.mount("/demo", pages)
    server = make_server(web, listen)
    children = ChildProcesses(server)
    events = settings.home / "events"
    events.mkdir(parents=True, exist_ok=True)
    with (
        _token(url) as token,
        children.running(
            "worker",
            *("holdfast.demo:tasks", "--queues", "demo,comms", "--heartbeat", "2s", "--grace", "5s"),
        ),
        children.running("dispatch", "--directory", str(events)),
    ):
        start_examples()
        tasks.close()
        _say(_welcome_text(address, token, certificate, settings), err=False)
        server.run(sockets=[bound])
        _ignore_signals()
        _say("Stopping …")
    if children.lost:
        raise HoldfastError(f"{children.lost[0]} exited, so everything was stopped")


def _welcome_text(address: str, token: str, certificate: Path | None, settings: Settings) -> str:
    where = "DATABASE_URL" if settings.database_url else f"in {_short(settings.home)}"
    lines = [
        "",
        f"  Example application  {address}/demo/",
        f"  Dashboard            {address}/login#{token}",
        "                       (this link logs you in)",
        f"  PostgreSQL           {where}",
        "",
    ]
    if certificate is not None:
        lines += [
            "  Your browser will show a warning because the certificate was generated on this machine:",
            f"  {_short(certificate)}",
            "",
        ]
    return "\n".join([*lines, "  Press Ctrl-C to stop everything.", ""])


@dataclass
class ChildProcesses:
    """The worker and the dispatcher. If one of them exits, everything is stopped."""

    server: "HttpServer"
    stopping: threading.Event = field(default_factory=threading.Event)
    lost: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def running(self, *command: str) -> Iterator[None]:
        """Run a command in its own process group, so that Ctrl-C reaches only this process."""
        with subprocess.Popen([*_COMMAND, *command], process_group=0) as process:
            watch = threading.Thread(target=self._watch, args=(process, command[0]), daemon=True)
            watch.start()
            try:
                yield
            finally:
                self.stopping.set()
                _end(process)

    def _watch(self, process: "subprocess.Popen[bytes]", name: str) -> None:
        code = process.wait()
        if not self.stopping.is_set():
            self.lost.append(f"holdfast {name} (exit code {code})")
            self.server.handle_exit(signal.SIGTERM, None)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


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
def _token(url: str) -> Iterator[str]:
    """An access token that is renewed while everything runs, and expires soon after."""
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
            with contextlib.suppress(HoldfastError):  # it is renewed again before it expires
                _with_engine(url, lambda it: it.run(access.renew_token(token_id, TOKEN_LIFE)))

    thread = threading.Thread(target=renew, name="renew", daemon=True)
    thread.start()
    try:
        yield token
    finally:
        renewing.set()
        thread.join()
        with contextlib.suppress(HoldfastError):  # it expires anyway
            _with_engine(url, lambda it: it.run(access.revoke_token(token_id, "holdfast up has ended")))


def _token_name(pid: int) -> str:
    return f"holdfast up on {platform.node()[:60]}, process {pid}"


def _revoke_left_behind(engine: Engine) -> None:
    """Revoke tokens of processes on this machine that were killed."""
    for token in engine.run(access.access_tokens()):
        found = re.fullmatch(r"holdfast up on .*, process (\d+)", token.name)
        if found and token.good and token.name == _token_name(int(found[1])) and not _is_alive(int(found[1])):
            engine.run(access.revoke_token(token.token_id, "its holdfast up was killed"))


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():  # the process id was reused
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
    """Stop everything in order on Ctrl-C, SIGTERM and, except under nohup, when the terminal closes."""

    def stop(_: int, __: FrameType | None) -> None:
        _ignore_signals()
        raise _AskedToStop

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


def _short(path: Path) -> str:
    """Relative to the working directory, if it is inside."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
