"""For tests of the engine: `tx` (rolled back) for functions, `db` (a clone) for everything else."""

import os
import tomllib
from collections.abc import Generator, Iterator, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.testing.server import Server
from support.database import Database, cloned_database
from support.server import disposable_server

pytest_plugins = ["holdfast.testing", "pytester"]

TEMPLATE = "holdfast_template"

FULL = {"ground", "browser", "axe", "faketime", "jetstream", "pooled", "rabbit", "shared_front"}
"""Fixtures of the full suite: a fleet on a durable server, or a program that pip does not install."""


def pytest_configure() -> None:
    """The executors, sinks and providers are found by the entry points of the installation."""
    declared = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for group, points in declared["entry-points"].items():
        have = {point.name: point.value for point in entry_points(group=group)}
        if missing := {name: value for name, value in points.items() if have.get(name) != value}:
            pytest.exit(
                f"holdfast-pg is installed without these entry points of {group}: {', '.join(missing)}.\n"
                "Run make, or .venv/bin/pip install --no-deps --no-build-isolation -e .",
                returncode=4,
            )


def mark_the_longer(items: list[pytest.Item]) -> None:
    """What needs such a fixture is for `make test-full`, unless it is marked for the first look."""
    for item in items:
        wanted = FULL.intersection(getattr(item, "fixturenames", ()))
        if wanted and not item.get_closest_marker("first_look"):
            item.add_marker("full")


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not for every day: skipped is only what this machine cannot do."""
    wanted = {
        "long": os.environ.get("HOLDFAST_ACCEPTANCE") == "full",
        "release": bool(os.environ.get("HOLDFAST_RELEASE")),
    }
    left_out = {mark for mark, run in wanted.items() if not run}
    away = [item for item in items if any(mark.name in left_out for mark in item.iter_markers())]
    if away:
        config.hook.pytest_deselected(items=away)
        items[:] = [item for item in items if item not in away]
    mark_the_longer(items)


_left_out = pytest.StashKey[int]()
LEFT_OUT = "left_out"


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count those of the full suite that `make test` leaves out by their marker; -k leaves out others too."""
    if items and all(item.get_closest_marker("full") for item in items) and items[0].config.option.markexpr:
        items[0].config.stash[_left_out] = len(items)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    """Under xdist only the processes that run the tests know, and each of them knows all of it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[LEFT_OUT] = session.config.stash.get(_left_out, 0)
    return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_left_out] = getattr(node, "workeroutput", {}).get(LEFT_OUT, 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left_out := config.stash.get(_left_out, 0):
        terminalreporter.write_line(
            f"Left out: {left_out} tests of the full suite. make test-full runs them too."
        )


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """One per process, so that tests under xdist do not share roles, which belong to a whole server."""
    with disposable_server(int(os.environ.get("HOLDFAST_TEST_PG", "18"))) as running:
        yield running


@pytest.fixture(scope="session")
def holdfast_server(server: EmbeddedServer) -> Server:
    """The plugin has the same server, and databases of its own on it."""
    return Server(server.url("postgres"))


@pytest.fixture(scope="session")
def template(server: EmbeddedServer) -> str:
    """The name of a migrated database with a settable clock, to be cloned."""
    return _migrated(server, TEMPLATE)


@pytest.fixture(scope="session")
def core_template(server: EmbeddedServer) -> str:
    """The same without any optional unit."""
    return _migrated(server, f"{TEMPLATE}_core", "messages", "events", "web")


def _migrated(server: EmbeddedServer, name: str, *left_out: str) -> str:
    schema = import_module(
        "holdfast._install.schema"
    )  # late, so that tests that need no schema run without it
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute(f'create database "{name}"'.encode())
    schema.migrate(server.url(name), choice=schema.Choice(unwanted=frozenset(left_out)))
    schema.install_test_clock(server.url(name))
    return name


@pytest.fixture
def db(server: EmbeddedServer, template: str) -> Iterator[Database]:
    """A database of the test's own."""
    with cloned_database(server, template) as database:
        yield database


@pytest.fixture
def core_db(server: EmbeddedServer, core_template: str) -> Iterator[Database]:
    """A database of the test's own that has core alone."""
    with cloned_database(server, core_template) as database:
        yield database


@pytest.fixture(scope="session")
def _shared_database(server: EmbeddedServer, template: str) -> Iterator[Database]:
    with cloned_database(server, template) as database:
        yield database


@pytest.fixture
def tx(_shared_database: Database) -> Iterator[psycopg.Connection[Any]]:
    """A transaction of the test's own, rolled back at the end."""
    connection = _shared_database.connect(autocommit=False)
    yield connection
    connection.rollback()
    _shared_database.close()
