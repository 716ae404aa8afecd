"""PgBouncer between a test and its database, in transaction mode."""

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._install.postgres.account import account_for
from support.database import Database
from support.programs import needed

# Fewer connections than clients: a client that relies on a connection of its own fails.
CONFIGURATION = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = 2
ignore_startup_parameters = extra_float_digits
"""


@contextmanager
def pgbouncer(db: Database) -> Iterator[str]:
    """The address of the database behind it."""
    program = needed("pgbouncer", "ensure-pgbouncer")
    address = conninfo_to_dict(db.dsn)
    account = account_for(Path(str(address["host"])))  # it does not run as root either
    listen = _free_port()
    with tempfile.TemporaryDirectory(prefix="hf-") as name:
        directory, users, configuration = Path(name), Path(name, "users.txt"), Path(name, "pgbouncer.ini")
        users.write_text('"postgres" ""\n')
        configuration.write_text(
            CONFIGURATION.format(host=address["host"], port=address["port"], listen=listen, users=users)
        )
        for path in (directory, users, configuration):
            os.chown(path, account.uid, account.gid)
        with subprocess.Popen(
            [program, "-q", configuration],
            stderr=subprocess.DEVNULL,
            user=None if account.is_current_user else account.uid,
            group=None if account.is_current_user else account.gid,
            extra_groups=None if account.is_current_user else [],
        ) as process:
            url = make_conninfo(db.dsn, host="127.0.0.1", port=listen, sslmode="disable")
            try:
                _wait(url)
                yield url
            finally:
                process.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _wait(url: str) -> None:
    deadline = monotonic() + 30
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            if monotonic() > deadline:
                raise
        else:
            return
