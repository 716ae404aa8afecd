"""One durable PostgreSQL for everyone, and a fresh database for each measurement."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.measure import wal_position
from benchmarks.peers import processes
from holdfast._install.postgres.embedded_server import EmbeddedServer

Connection = psycopg.Connection[tuple[Any, ...]]
DURABLE = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "max_connections": "500",
}


class Cluster:
    def __init__(self, home: Path, version: int) -> None:
        self.server = EmbeddedServer(home, version=version, settings=DURABLE)

    @contextmanager
    def running(self) -> Iterator["Cluster"]:
        self.server.start()
        try:
            yield self
        finally:
            self.server.stop("fast")

    def create(self, name: str, template: str = "template0") -> str:
        """Make the database anew and answer its address."""
        with self.connect("postgres") as admin:
            admin.execute(f'drop database if exists "{name}" with (force)')
            # Copied as files, so that every measurement begins just after a checkpoint.
            admin.execute(f'create database "{name}" template "{template}" strategy file_copy')
        # A large copy would be on its way to the disk for a while, and every commit would wait behind it.
        os.sync()
        return self.server.url(name)

    def drop(self, name: str) -> None:
        with self.connect("postgres") as admin:
            admin.execute(f'drop database if exists "{name}" with (force)')

    @contextmanager
    def connect(self, name: str) -> Iterator[Connection]:
        with psycopg.connect(self.server.url(name), autocommit=True) as connection:
            yield connection

    def wal_position(self) -> int:
        with self.connect("postgres") as connection:
            return wal_position(connection)

    @property
    def postmaster(self) -> int:
        postmaster = self.server.status().pid
        assert postmaster is not None, "the server is gone"
        return postmaster

    def cpu_seconds(self) -> float:
        return processes.cpu_seconds([self.postmaster])


def number(connection: Connection, query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])
