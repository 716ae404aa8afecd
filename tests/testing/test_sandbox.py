"""A database of each test's own, and the apps that keep their work in it."""

from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast import App
from holdfast.errors import NotFound
from holdfast.settings import Settings
from holdfast.testing import Sandbox
from holdfast.testing.database import Databases


def test_an_app_keeps_its_work_in_the_sandbox_and_is_put_back_afterwards(
    holdfast_databases: Databases,
) -> None:
    home = "postgresql://nobody@nowhere.invalid/none"
    app = App(home)

    @app.task("any.thing")
    def thing() -> None: ...

    with holdfast_databases.clone() as dsn:
        sandbox = Sandbox(dsn)
        assert sandbox.use(app) is app
        assert sandbox.use(app) is app
        thing.enqueue()
        sandbox.assert_enqueued(thing, count=1)
        assert app.settings.database_url == dsn
        sandbox.close()
    assert app.settings.database_url == home
    assert conninfo_to_dict(app.database_url)["host"] == "nowhere.invalid"


def test_settings_that_an_app_was_given_are_kept_but_for_the_address(holdfast: Sandbox) -> None:
    app = holdfast.use(App(settings=Settings.load(database_url="postgresql://nowhere/x", lease="77s")))
    assert app.settings.lease.total_seconds() == 77
    assert app.settings.database_url == holdfast.dsn


def test_a_task_is_found_by_its_handle_or_its_id(holdfast: Sandbox, app: App) -> None:
    @app.task("any.thing")
    def thing() -> None: ...

    handle = thing.enqueue()
    for given in (handle, handle.task_id, str(handle.task_id)):
        assert holdfast.task(given).type == "any.thing"
    with pytest.raises(NotFound, match="Was its transaction committed"):
        holdfast.task(uuid4())


def test_connections_are_closed_with_the_sandbox(holdfast_databases: Databases) -> None:
    with holdfast_databases.clone() as dsn:
        sandbox = Sandbox(dsn)
        plain, transactional = sandbox.connect(), sandbox.connect(autocommit=False)
        assert (plain.autocommit, transactional.autocommit) == (True, False)
        sandbox.close()
        assert plain.closed
        assert transactional.closed


def test_a_clone_is_dropped_when_the_next_one_ends(holdfast_databases: Databases) -> None:
    with holdfast_databases.clone() as first:
        pass
    with holdfast_databases.clone():
        psycopg.connect(first).close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(first)
