"""Tests of a Django project: the sandbox, and the fixture of the pytest plugin."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from django.db import connections, transaction

from holdfast.errors import InvalidArgument
from support.database import Database

SHOP = Path(__file__).parents[3] / "examples" / "django_shop"


@pytest.fixture
def tasks(sandbox: Any) -> Any:
    from support.django_app import tasks

    return tasks


def test_tasks_of_an_open_transaction_are_run_in_it(sandbox: Any, tasks: Any, db: Database) -> None:
    with transaction.atomic():
        tasks.double.enqueue(2)
        tasks.adouble.enqueue(3)
        tasks.add.enqueue(4)
        tasks.aadd.enqueue(5)
        assert sorted(ran.result for ran in sandbox.drain()) == [4, 4, 5, 6]
        assert db.connect().execute("select count(*) from queues.task").fetchone() == (0,)
        transaction.set_rollback(True)


def test_the_orm_of_a_task_uses_the_connection_of_the_test(sandbox: Any, tasks: Any) -> None:
    with transaction.atomic():
        tasks.count_users.enqueue()
        tasks.acount_users.enqueue()
        assert [ran.status for ran in sandbox.drain()] == ["succeeded", "succeeded"]
        assert sandbox.run_task(tasks.count_users) > 0
        transaction.set_rollback(True)
    assert tasks.connected == [True, True, True]


def test_a_task_that_enqueues_is_followed(sandbox: Any, tasks: Any) -> None:
    with transaction.atomic():
        tasks.double_later.enqueue(2)
        assert [ran.type for ran in sandbox.drain()] == ["shop.double_later", "shop.double"]
        transaction.set_rollback(True)


def test_a_retry_comes_when_the_clock_is_advanced(sandbox: Any, tasks: Any) -> None:
    with transaction.atomic():
        tasks.double_later.enqueue(-1)
        ran = sandbox.drain(until=timedelta(hours=1))
        assert [one.status for one in ran if one.type == "shop.double_later"] == ["retrying", "dead_letter"]
        transaction.set_rollback(True)


def test_a_test_that_commits_leaves_no_tasks_and_a_running_clock(django: Any) -> None:
    from holdfast.contrib.django.testing import Sandbox
    from support.django_app import tasks

    first = Sandbox()
    tasks.double.using(key="one").enqueue(1)
    before = first.clock.freeze()
    first.close()
    second = Sandbox()
    assert second.enqueued() == []
    assert second.clock.now() > before
    assert tasks.double.using(key="one").enqueue(2).created
    second.close()


async def test_an_asynchronous_test_drains(sandbox: Any, tasks: Any) -> None:
    from asgiref.sync import sync_to_async

    await tasks.adouble.aenqueue(2)
    assert [ran.result for ran in await sandbox.adrain()] == [4]
    await sync_to_async(connections.close_all)()


def test_a_sandbox_is_refused_outside_of_tests(django: Any) -> None:
    from django.test.utils import setup_test_environment, teardown_test_environment

    from holdfast.contrib.django.testing import Sandbox

    teardown_test_environment()
    try:
        with pytest.raises(InvalidArgument, match="only in tests"):
            Sandbox()
    finally:
        setup_test_environment()


def test_a_plain_app_is_refused(sandbox: Any) -> None:
    from holdfast import App

    with pytest.raises(InvalidArgument, match="Make it a DjangoApp"):
        sandbox.use(App(name="plain"))


PLUGIN_TESTS = """
    import pytest
    from django.db import transaction
    from shop.models import Customer
    from shop.tasks import send_welcome

    @pytest.mark.django_db
    def test_a_view_enqueues(client, holdfast, mailoutbox):
        client.post("/sign-up", {"email": "ada@example.com"})
        holdfast.assert_enqueued(send_welcome)
        assert [ran.status for ran in holdfast.drain()] == ["succeeded"]
        assert len(mailoutbox) == 1

    def test_the_database_is_empty_again(holdfast):
        assert holdfast.enqueued() == []
        assert Customer.objects.count() == 0

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("time", [1, 2])
    def test_a_test_that_commits_starts_without_tasks(holdfast, time):
        assert holdfast.enqueued() == []
        send_welcome.using(key="same").enqueue(time)
        holdfast.clock.freeze()
    """


@pytest.mark.full
@pytest.mark.parametrize("options", [[], ["--no-migrations"]], ids=["migrations", "no-migrations"])
def test_the_fixture_of_the_plugin(db: Database, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["holdfast.contrib.django.fixtures"]\n')
    (tmp_path / "test_shop.py").write_text(dedent(PLUGIN_TESTS))
    (tmp_path / "pytest.ini").write_text("[pytest]\nDJANGO_SETTINGS_MODULE = shop.settings\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:randomly", *options],
        cwd=tmp_path,
        env={**os.environ, "DATABASE_URL": db.dsn, "PYTHONPATH": str(SHOP)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout
