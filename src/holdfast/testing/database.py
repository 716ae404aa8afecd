"""One database for each test, copied from a template that is migrated once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.sql import SQL, Identifier

from holdfast._install.schema import Choice, install_test_clock, migrate
from holdfast.errors import translate
from holdfast.settings import Settings
from holdfast.testing.server import Server

_PREFIX = "holdfast_test_"
_FIRST_WITH_STRATEGY = 150000

# A run of the tests holds one connection whose application name is the prefix of its databases. A database
# without such a connection was left by a run that was killed. Databases of other logins are left alone.
_ORPHANS = f"""
  select d.datname from pg_catalog.pg_database d
  where starts_with(d.datname, '{_PREFIX}')
    and d.datdba = (select r.oid from pg_catalog.pg_roles r where r.rolname = current_user)
    and not exists (
      select from pg_catalog.pg_stat_activity a where a.application_name <> ''
        and starts_with(d.datname, a.application_name || '_'))
"""  # noqa: S608 - our names only


class Databases:
    """The databases of one run of the tests."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._run = f"{_PREFIX}{uuid4().hex[:8]}"
        self._numbers = count(1)
        self._template = f"{self._run}_template"
        self._left: list[str] = []
        try:
            self._admin = psycopg.connect(server.address, autocommit=True, application_name=self._run)
        except psycopg.Error as error:
            raise translate(error) from error
        self._remove([name for (name,) in self._admin.execute(_ORPHANS.encode()).fetchall()])

    def make_template(self, prepare: Callable[[str], object]) -> None:
        """Create the database that all others are copied from: migrated, with a test clock, and prepared."""
        url = self._server.url(self._template)
        self._admin.execute(SQL("create database {}").format(Identifier(self._template)))
        settings = Settings.load()
        migrate(url, single_login=self._server.given and settings.single_login, choice=Choice.of(settings))
        install_test_clock(url)
        prepare(url)

    @contextmanager
    def clone(self) -> Iterator[str]:
        """Create a database and yield its URL."""
        name = f"{self._run}_{next(self._numbers)}"
        copy_database(self._admin, self._template, name)
        try:
            yield self._server.url(name)
        finally:
            # Dropped one test later: a drop waits 100 ms for a connection that is just closing.
            left, self._left = self._left, [name]
            self._remove(left)

    def close(self) -> None:
        self._remove([*self._left, self._template])
        self._admin.close()

    def _remove(self, names: list[str]) -> None:
        for name in names:
            drop_database(self._admin, name)


def copy_database(admin: psycopg.Connection[Any], template: str, name: str) -> None:
    command = SQL("create database {} template {}").format(Identifier(name), Identifier(template))
    admin.execute(command + SQL(" strategy file_copy") if _copies_files(admin) else command)


def drop_database(admin: psycopg.Connection[Any], name: str) -> None:
    admin.execute(SQL("drop database if exists {} with (force)").format(Identifier(name)))


def _copies_files(admin: psycopg.Connection[Any]) -> bool:
    """Copying files is faster than logging them only while fsync is off."""
    if admin.info.server_version < _FIRST_WITH_STRATEGY:
        return False
    return admin.execute("show fsync").fetchone() == ("off",)
