"""A server becomes the standby of another one and takes its place."""

import re
import shutil
from subprocess import run

import psycopg

from holdfast._install.postgres.account import account_for
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.postgres.installation import binaries

COPY = "-R -X stream -c fast"
"""The options of pg_basebackup, as on the page about scaling out."""


def follow(target: EmbeddedServer, primary: EmbeddedServer) -> None:
    """Replace the data of the target by a copy of the primary, and let it follow."""
    data = target.status().data
    target.stop("fast")
    socket = str(psycopg.conninfo.conninfo_to_dict(primary.url("postgres"))["host"])
    account = account_for(data)
    shutil.rmtree(data)
    copied = account.run(
        *(binaries(primary.version) / "pg_basebackup", "-D", data, "-h", socket, "-U", "postgres"),
        *("-p", primary.settings["port"], *COPY.split()),
        cwd=data.parent,
    )
    assert copied.returncode == 0, copied.stdout
    target.start()


def take_over(standby: EmbeddedServer, primary: EmbeddedServer) -> None:
    """Stop the primary, which first sends the rest, and promote the standby when it has it all."""
    primary.stop("fast")
    with psycopg.connect(standby.url("postgres"), autocommit=True) as connection:
        for _ in range(10_000):
            received = "select pg_last_wal_replay_lsn() > %s::pg_lsn"
            if connection.execute(received, [_end_of(primary)]).fetchone() == (True,):
                break
        else:
            raise AssertionError("the standby does not catch up")
        connection.execute("select pg_promote(true, 60)")


def _end_of(stopped: EmbeddedServer) -> str:
    """The last record of a server that was stopped in order: its checkpoint."""
    command = [binaries(stopped.version) / "pg_controldata", stopped.status().data]
    shown = run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"Latest checkpoint location: +(\S+)", shown)
    assert found
    return found[1]
