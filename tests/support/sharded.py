"""A front and its shards on one PostgreSQL 15, for tests; skipped where PL/Proxy cannot be had."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from holdfast._install import schema
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.shards.front import map_logins
from holdfast.shards.migration import listed, migrate_shards
from support.command import HOLDFAST
from support.database import Database
from support.front_worker import let_tests_work
from support.programs import not_tested
from support.server import disposable_server

PLPROXY = Path("/usr/lib/postgresql/15/lib/plproxy.so")
COUNT = 4
FRONT = "front"


def require_plproxy() -> None:
    """Shards are tested where Debian's packages are. In CI nothing is skipped."""
    if not PLPROXY.exists():
        not_tested("shards are not tested: there is no PL/Proxy; tools/ensure-plproxy installs it")


class FrontConnection(psycopg.Connection[Any]):
    """A connection to a front that knows its shards, for helpers that look into tables."""

    shards: list[psycopg.Connection[Any]]


@dataclass
class FrontDatabase(Database):
    """The front, to a test that knows only one database."""

    shards: list[Database] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    def connect(self, role: str | None = None, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        dsn = self.dsn_as(role) if role else self.dsn
        connection = FrontConnection.connect(dsn, autocommit=autocommit)
        connection.shards = [shard.connect(role, autocommit=autocommit) for shard in self.shards]
        self._opened.append(connection)
        return connection

    def connect_alone(self) -> psycopg.Connection[Any]:
        """Without connections to the shards, one of which may be lost."""
        connection = psycopg.connect(self.dsn, autocommit=True)
        self._opened.append(connection)
        return connection

    def dsn_as(self, role: str) -> str:
        found = super().dsn_as(role)
        if role not in self._known:  # a login that is new needs to be known to the front
            self.map_logins()
            self._known.add(role)
        return found

    def map_logins(self) -> None:
        with psycopg.connect(self.dsn) as connection:
            map_logins(connection, listed(self.settings))

    @property
    def settings(self) -> dict[str, str]:
        """What HOLDFAST_SHARDS says."""
        return {f"s{n:02}": shard.dsn for n, shard in enumerate(self.shards)}

    @property
    def environment(self) -> dict[str, str]:
        return {
            "DATABASE_URL": self.dsn,
            "HOLDFAST_SHARDS": " ".join(f"{name}={dsn}" for name, dsn in self.settings.items()),
        }

    def migrate(self) -> None:
        migrate_shards(self.dsn, self.settings)

    def close(self) -> None:
        super().close()
        for shard in self.shards:
            shard.close()


@contextmanager
def sharded_server(count: int = COUNT) -> Iterator[FrontDatabase]:
    require_plproxy()
    with disposable_server(15) as server:
        _allow_connections(server)
        names = [FRONT, *(f"shard_{n}" for n in range(count))]
        with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
            admin.execute("create database template_shard")
            schema.migrate(server.url("template_shard"))
            schema.install_test_clock(server.url("template_shard"))
            with psycopg.connect(server.url("template_shard")) as template:
                template.execute("create table public.kept_policy as table queues.retention_policy")
                for table in tables_of(template):  # facts refuse to be cleared otherwise
                    template.execute(f"alter table {table} disable trigger user")
            for name in names:
                copy = "" if name == FRONT else " template template_shard"
                admin.execute(f"create database {name}{copy}")
        front = FrontDatabase(server, FRONT, shards=[Database(server, name) for name in names[1:]])
        front.migrate()
        yield front
        front.close()


def _allow_connections(server: EmbeddedServer) -> None:
    """Each session of a front has one to each shard, and here all are on one server."""
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute("alter system set max_connections = 400")
    server.stop()
    server.start()


def front_for_tests_of_one_database(front: FrontDatabase) -> FrontDatabase:
    """Another front, on which tests may also act as workers. Two shards, because each takes its time."""
    names = ["half_0", "half_1"]
    with psycopg.connect(front.server.url("postgres"), autocommit=True) as admin:
        admin.execute("create database front_with_workers")
        for name in names:
            admin.execute(f"create database {name} template template_shard")
    shards = [Database(front.server, name) for name in names]
    other = FrontDatabase(front.server, "front_with_workers", shards=shards)
    other.migrate()
    let_tests_work(other.dsn, other.shards[0].dsn)
    return other


def clear(front: FrontDatabase, kept: set[str]) -> None:
    """Remove what a test has written from every shard, so that the next one finds them empty."""
    for shard in front.shards:
        with psycopg.connect(shard.dsn, autocommit=True) as connection:
            if tables := [table for table in tables_of(connection, filled=True) if table not in kept]:
                connection.execute(f"truncate {', '.join(tables)} cascade")
            connection.execute("update queues.test_clock set stands_at = null, shifted_by = '0'")
            connection.execute(
                "delete from queues.retention_policy;"
                " insert into queues.retention_policy select * from kept_policy"
            )


def tables_of(connection: psycopg.Connection[Any], *, filled: bool = False) -> list[str]:
    rows = connection.execute(
        f"""select c.oid::regclass::text from pg_class c
           where c.relnamespace::regnamespace::text in ('queues', 'comms') and c.relkind = 'r'
             and (not {filled} or pg_relation_size(c.oid) > 0) order by 1"""
    ).fetchall()
    return [row[0] for row in rows]


def filled_tables(server: EmbeddedServer, name: str) -> set[str]:
    """The tables that have rows before any test: settings, not what tests write."""
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        return {
            table
            for table in tables_of(connection)
            if connection.execute(f"select exists (select from {table})").fetchone() == (True,)
        }


def run_holdfast(*arguments: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [HOLDFAST, *arguments], env=os.environ | env, capture_output=True, text=True, check=False, timeout=60
    )


@contextmanager
def lost(front: FrontDatabase, number: int) -> Iterator[str]:
    """A shard that accepts no connections until the end of the block."""
    name = front.shards[number].name
    front.close()
    with psycopg.connect(front.server.url("postgres"), autocommit=True) as admin:
        admin.execute(f"alter database {name} allow_connections false")
        admin.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s", [name]
        )
        try:
            yield f"s{number:02}"
        finally:
            admin.execute(f"alter database {name} allow_connections true")
