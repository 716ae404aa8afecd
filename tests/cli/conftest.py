"""Commands against a real database, in this process."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from holdfast._engine import Engine, enqueue, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._install.postgres.embedded_server import EmbeddedServer
from support.commands import Holdfast, run
from support.database import Database, cloned_database
from support.process_commands import ProcessCommand, process_commands


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No settings of this repository, no width of this terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_HOME", raising=False)
    monkeypatch.setenv("TERMINAL_WIDTH", "1000")
    return tmp_path


@pytest.fixture
def holdfast(db: Database) -> Holdfast:
    """Run a command on the test's own database."""
    return partial(run, url=db.dsn)


@pytest.fixture(scope="session")
def empty_db(server: EmbeddedServer, template: str) -> Iterator[Database]:
    """One for all tests of input that is refused: nothing may ever be in it."""
    with cloned_database(server, template) as database:
        yield database
        left = Engine(database.connect()).run(tasks.list_tasks())
        assert left == []


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db.connect())


@pytest.fixture
def task_id(engine: Engine) -> UUID:
    return engine.run(enqueue.enqueue(NewTask("billing.charge", {"amount": 7})))


@pytest.fixture(name="run")
def run_process(db: Database) -> ProcessCommand:
    """Run a command of `holdfast process`."""
    return process_commands(db)


@pytest.fixture
def shipping(run: ProcessCommand) -> ProcessCommand:
    """The same, with a new process called shipping."""
    run("new", "shipping")
    return run
