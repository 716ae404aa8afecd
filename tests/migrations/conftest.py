"""For tests of the installer: a server without a trace of Holdfast, cleaned up after each test."""

import os
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.postgres.installation import binaries
from holdfast._install.schema import migrate
from support.database import Database
from support.releases import Release, version_1
from support.server import disposable_server

VERSION = int(os.environ.get("HOLDFAST_TEST_PG", "18"))
_numbers = count(1)


@pytest.fixture(scope="session")
def other_server() -> Iterator[EmbeddedServer]:
    """Apart from `server`, whose roles the rest of the tests need."""
    with disposable_server(VERSION) as running:
        yield running


@pytest.fixture
def bare_server(other_server: EmbeddedServer) -> Iterator[EmbeddedServer]:
    """Without databases and roles at first."""
    yield other_server
    with psycopg.connect(other_server.url("postgres"), autocommit=True) as admin:
        databases = "select datname from pg_database where not datistemplate and datname <> 'postgres'"
        for (name,) in admin.execute(databases).fetchall():
            admin.execute(SQL("drop database {} with (force)").format(Identifier(name)))
        roles = "select rolname from pg_roles where rolname <> 'postgres' and rolname not like 'pg\\_%'"
        if names := [Identifier(name) for (name,) in admin.execute(roles).fetchall()]:
            admin.execute(SQL("drop role {}").format(SQL(", ").join(names)))  # at once: they hang together


@pytest.fixture
def new_database(bare_server: EmbeddedServer) -> Iterator[Callable[[], Database]]:
    made: list[Database] = []

    def make() -> Database:
        database = Database(bare_server, f"blank_{next(_numbers)}")
        with psycopg.connect(bare_server.url("postgres"), autocommit=True) as admin:
            admin.execute(SQL("create database {}").format(Identifier(database.name)))
        made.append(database)
        return database

    yield make
    for database in made:
        database.close()


@pytest.fixture
def blank(new_database: Callable[[], Database]) -> Database:
    """An empty database."""
    return new_database()


@pytest.fixture
def old(blank: Database, tmp_path: Path) -> Database:
    """A database at version 1."""
    assert migrate(blank.dsn, sources=version_1(tmp_path / "version_1")).to_version == 1
    return blank


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """This release, to be changed into another."""
    return Release(tmp_path / "sql")


@pytest.fixture(scope="session")
def psql() -> Callable[[str, str], str]:
    """Apply a script as a person would, and answer what psql prints."""

    def apply(dsn: str, script: str) -> str:
        command = [str(binaries(VERSION) / "psql"), "--no-psqlrc", dsn]
        done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    return apply
