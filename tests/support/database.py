"""Databases that live as long as one test."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from time import sleep
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.testing.database import copy_database, drop_database

_numbers = count(1)


@dataclass
class Database:
    """One database of the test server, and every connection that a test opened to it."""

    server: EmbeddedServer
    name: str
    _opened: list[psycopg.Connection[Any]] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        return self.server.url(self.name)

    def connect(self, role: str | None = None, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        """Connect as the superuser, or as a login that is a member of only this role."""
        connection = psycopg.connect(self.dsn_as(role) if role else self.dsn, autocommit=autocommit)
        self._opened.append(connection)
        return connection

    def dsn_as(self, role: str) -> str:
        return make_conninfo(self.dsn, user=_login_for(self.server, role))

    def map_logins(self) -> None:
        """Make new logins known where that is needed: on a front."""

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()


def shards_of(connection: psycopg.Connection[Any]) -> list[psycopg.Connection[Any]]:
    """The connections to the databases that have the tables: of a front, to its shards."""
    return getattr(connection, "shards", [connection])


def _login_for(server: EmbeddedServer, role: str) -> str:
    """A role that may log in is used as it is; the others get a login of their own, once per server."""
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        found = admin.execute("select rolname, rolcanlogin from pg_catalog.pg_roles").fetchall()
        roles: dict[str, bool] = dict(found)
        if roles.get(role):
            return role
        login = f"{role}_login"
        if login not in roles:
            create = SQL("create role {} login in role {}")
            admin.execute(create.format(Identifier(login), Identifier(role)))
        return login


@contextmanager
def cloned_database(server: EmbeddedServer, template: str) -> Iterator[Database]:
    database = Database(server, f"test_{next(_numbers)}")
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        copy_database(admin, template, database.name)
        try:
            yield database
        finally:
            database.close()
            end_sessions(admin, database.name)
            drop_database(admin, database.name)


def end_sessions(admin: psycopg.Connection[Any], name: str) -> None:
    """Until there are none: a drop that meets one, even one that is just ending, waits 100 ms for it."""
    end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
    while admin.execute(end, [name]).fetchall():
        sleep(0.002)
