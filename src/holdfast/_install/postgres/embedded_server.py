"""Starts, finds and stops the embedded server."""

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from subprocess import CompletedProcess
from typing import Literal
from urllib.parse import quote

import psycopg

from holdfast._install.postgres.account import ServerAccount, account_for, private_directory
from holdfast._install.postgres.installation import (
    EMBEDDED_VERSION,
    follow_root_link,
    link_to_shared_directory,
    programs_for,
)
from holdfast._install.postgres.postmaster import Postmaster, disown_stale_files, find_postmaster
from holdfast.errors import EmbeddedServerError

DATABASE = "holdfast"

_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "port": "5432",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}

# sun_path holds 104 bytes on macOS and 108 on Linux; the name of the socket takes 15 of them.
_MAX_SOCKET_DIRECTORY = 85
_START_SECONDS = 300  # recovery after a crash may replay all of max_wal_size
_STOP_SECONDS = 120
_MAX_LOG_BYTES = 10_000_000


@dataclass(frozen=True)
class ServerStatus:
    running: bool
    version: int
    data: Path
    log: Path
    pid: int | None
    url: str | None


class EmbeddedServer:
    """One PostgreSQL server per home and version, shared by all processes that use it.

    It outlives the process that started it and runs until `stop` is called.
    """

    def __init__(
        self, home: Path, version: int = EMBEDDED_VERSION, settings: Mapping[str, str] | None = None
    ) -> None:
        self.version = version
        self.home = home.resolve()
        self.settings = _SETTINGS | dict(settings or {})
        self._default_base = self.home / f"postgres-{version}"

    @property
    def running(self) -> bool:
        return self._postmaster() is not None

    def start(self) -> str:
        """Start the server unless it runs, wait until it accepts connections, and return its URL."""
        with self._locked():
            if self.running:
                # The server may be dying: a killed process is still listed for a moment.
                with suppress(EmbeddedServerError):
                    self._ensure_database()
                    return self.url()
            if not self.running:
                self._prepare()
                self._launch()
            self._ensure_database()
        return self.url()

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> bool:
        """Stop the server and wait until it is gone. Return False if it was not running."""
        if not self._base.exists():
            return False
        with self._locked():
            if not self.running:
                return False
            stopped = self._pg_ctl("stop", "-m", mode, "-t", str(_STOP_SECONDS))
            if stopped.returncode != 0:
                raise self._failure("did not stop")
            return True

    def status(self) -> ServerStatus:
        postmaster = self._postmaster()
        return ServerStatus(
            running=postmaster is not None,
            version=self.version,
            data=self._data,
            log=self._log,
            pid=postmaster.pid if postmaster else None,
            url=self.url() if postmaster else None,
        )

    def url(self, database: str = DATABASE) -> str:
        """The URL of a database. It includes the port, because PGPORT may differ."""
        postmaster = self._postmaster()
        socket = postmaster.socket_directory if postmaster else None
        host = quote(str(socket or self._socket_directory))
        return f"postgresql://postgres@/{quote(database, safe='')}?host={host}&port={self.settings['port']}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.home / f"postgres-{self.version}.lock", os.O_RDONLY | os.O_CREAT, 0o644)
        except OSError as error:
            raise EmbeddedServerError(
                f"{self.home} cannot be used ({error.strerror}): set HOLDFAST_HOME to a directory of your own"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    @property
    def _base(self) -> Path:
        return follow_root_link(self._default_base)

    @property
    def _data(self) -> Path:
        return self._base / "data"

    @property
    def _log(self) -> Path:
        return self._base / "log" / "postgres.log"

    @cached_property
    def _programs(self) -> Path:
        return programs_for(self._account, self.version)

    @cached_property
    def _account(self) -> ServerAccount:
        return account_for(self._base)

    def _postmaster(self) -> Postmaster | None:
        try:
            return find_postmaster(self._data)
        except PermissionError:
            account_for(self._base)  # raises an error that names the owner
            raise

    @property
    def _socket_directory(self) -> Path:
        beside = self._base / "socket"
        if len(os.fsencode(beside)) <= _MAX_SOCKET_DIRECTORY and re.fullmatch(r"[\w./-]+", str(beside)):
            return beside
        # Not $TMPDIR: all processes must agree on the directory.
        digest = hashlib.sha256(os.fsencode(self._base)).hexdigest()[:16]
        return Path("/tmp") / f"holdfast-{digest}"  # noqa: S108 - private_directory refuses a directory of another user

    def _prepare(self) -> None:
        account = self._account
        self._choose_base(account)
        private_directory(self._base, account)
        private_directory(self._log.parent, account)
        private_directory(self._socket_directory, account)
        if not self._data.exists():
            self._initialise()
        self._configure()
        if self._log.exists() and self._log.stat().st_size > _MAX_LOG_BYTES:
            self._log.replace(self._log.with_suffix(".old.log"))

    def _choose_base(self, account: ServerAccount) -> None:
        """Use the home if the account may enter it, else the shared directory."""
        if self._base != self._default_base or account.may_enter(self.home):
            return
        if self._default_base.exists():
            raise EmbeddedServerError(
                f"{self._default_base} holds data, but its owner may not enter {self.home}: "
                "run chmod o+x on the directories above it, or move the home to a public directory"
            )
        link_to_shared_directory(self._default_base, account)

    def _initialise(self) -> None:
        """Create the data directory under another name first, so that an interrupted initdb is never used."""
        unfinished = self._data.with_name("data.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        result = self._run("initdb", "-D", str(unfinished), *self._initdb_options())
        if result.returncode != 0:
            raise EmbeddedServerError(
                f"The embedded PostgreSQL could not be initialised:\n{result.stdout.strip()}"
            )
        unfinished.rename(self._data)
        _sync(self._base)

    def _initdb_options(self) -> Iterator[str]:
        yield from ("--username=postgres", "--auth-local=trust", "--auth-host=reject")
        yield from ("--encoding=UTF8", "--locale=C")
        if self.version >= 17:  # noqa: PLR2004 - the first version with the builtin locale provider
            yield from ("--locale-provider=builtin", "--builtin-locale=C.UTF-8")
        if self.settings["fsync"] == "off":
            yield "--no-sync"

    def _configure(self) -> None:
        """Write the configuration at each start. Settings made with ALTER SYSTEM take precedence."""
        lines = ["# Written by Holdfast at every start. Use ALTER SYSTEM to change a setting."]
        lines += [f"{name} = {_quoted(value)}" for name, value in self.settings.items()]
        self._account.write(self._data / "postgresql.conf", "\n".join([*lines, ""]))

    def _launch(self) -> None:
        # On the command line, so that ALTER SYSTEM cannot expose a server without passwords to the network.
        options = ["-D", str(self._data), "-c", "listen_addresses="]
        options += ["-c", f"unix_socket_directories={self._socket_directory}"]
        deadline = time.monotonic() + _START_SECONDS
        while True:
            disown_stale_files(self._data, self._socket_directory, self._account)
            log = str(self._log.relative_to(self._base))
            started = self._pg_ctl("start", "-l", log, "-t", str(_START_SECONDS), "-o", shlex.join(options))
            if started.returncode == 0:
                return
            # Backends of a killed server need a moment to notice that it is gone.
            if (
                "pre-existing shared memory block" not in self._last_log_lines(5)
                or time.monotonic() > deadline
            ):
                raise self._failure("did not start")
            time.sleep(0.1)

    def _pg_ctl(self, *arguments: str) -> CompletedProcess[str]:
        return self._run("pg_ctl", *arguments, "-w")

    def _run(self, program: str, *arguments: str) -> CompletedProcess[str]:
        # PGDATA and relative paths, because pg_ctl inserts its arguments into a shell command.
        return self._account.run(self._programs / program, *arguments, cwd=self._base, PGDATA=str(self._data))

    def _ensure_database(self) -> None:
        with self._connect_when_ready() as connection:
            exists = connection.execute("select from pg_catalog.pg_database where datname = %s", [DATABASE])
            if exists.fetchone() is None:
                connection.execute(f'create database "{DATABASE}"')

    def _connect_when_ready(self) -> psycopg.Connection:
        """Another process may have started the server and been killed before it was ready."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                return psycopg.connect(self.url("postgres"), autocommit=True)
            except psycopg.OperationalError as error:
                if not self.running or time.monotonic() > deadline:
                    raise self._failure(f"does not accept connections ({error})") from error
            time.sleep(0.05)

    def _failure(self, what: str) -> EmbeddedServerError:
        log = self._last_log_lines(10)
        return EmbeddedServerError(f"The embedded PostgreSQL {what}. The end of {self._log}:\n{log}")

    def _last_log_lines(self, count: int) -> str:
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-count:])


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
