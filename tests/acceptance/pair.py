"""A primary and its standby, and what becomes of them."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from acceptance.waiting import wait_for
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import migrate
from support.database import Database
from support.server import disposable_home

_SETTINGS = {"shared_buffers": "128MB", "wal_writer_delay": "10s", "hot_standby": "on"}
_CAUGHT_UP = """
    select count(*) = 1 from pg_stat_replication
    where state = 'streaming' and replay_lsn = pg_current_wal_lsn() and (sync_state = 'sync') = %s"""


class Standby(EmbeddedServer):
    """A copy of another server, which follows it until it is promoted."""

    def __init__(self, home: Path, original: EmbeddedServer) -> None:
        super().__init__(home, original.version, original.settings)
        self._original = original

    def _initialise(self) -> None:
        address = conninfo_to_dict(self._original.url("postgres"))
        source = [f"--host={address['host']}", f"--port={address['port']}", "--username=postgres"]
        options = ["--write-recovery-conf", "--checkpoint=fast", "--pgdata", str(self._data)]
        made = self._run("pg_basebackup", *source, *options)
        assert made.returncode == 0, made.stdout


class Pair:
    """Both on this machine."""

    def __init__(self, primary: EmbeddedServer, standby: EmbeddedServer, *, synchronous: bool) -> None:
        self.primary = primary
        self.standby = standby
        migrate(primary.start())
        self.database = Database(primary, "holdfast")
        for role in ("holdfast_client", "holdfast_worker"):
            self.database.dsn_as(role)  # the login has to be made here: a standby makes none
        standby.start()
        if synchronous:
            # Now only, because a primary without its standby would wait for ever.
            _ask(primary, "alter system set synchronous_standby_names = '*'")
            _ask(primary, "select pg_reload_conf()")
        wait_for("the standby to catch up", lambda: _ask(primary, _CAUGHT_UP, [synchronous]))

    def address(self, role: str) -> str:
        """The address of both servers; clients use the one that accepts writes."""
        both = [conninfo_to_dict(server.url("holdfast")) for server in (self.primary, self.standby)]
        return make_conninfo(
            self.primary.url("holdfast"),
            host=",".join(str(each["host"]) for each in both),
            port=",".join(str(each["port"]) for each in both),
            user=f"{role}_login",
            target_session_attrs="read-write",
        )

    def fail_over(self) -> None:
        """The primary stops at once and does not come back; the standby takes its place."""
        self.primary.stop("immediate")
        _ask(self.standby, "select pg_promote(true, 60)")
        self.database.close()
        self.database.server = self.standby

    @contextmanager
    def falling_behind(self) -> Iterator[None]:
        """Until the block ends, the standby takes in nothing."""
        receiver = _ask(self.standby, "select pid from pg_stat_wal_receiver")
        os.kill(receiver, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(receiver, signal.SIGCONT)


def _ask(server: EmbeddedServer, statement: str, parameters: list[Any] | None = None) -> Any:
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), parameters)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


@contextmanager
def running_pair(version: int, *, synchronous: bool) -> Iterator[Pair]:
    with disposable_home(version) as one, disposable_home(version) as other:
        primary = EmbeddedServer(one, version, _SETTINGS)
        pair = Pair(primary, Standby(other, primary), synchronous=synchronous)
        try:
            yield pair
        finally:
            pair.database.close()
