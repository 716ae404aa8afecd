"""The application of a Django project: transactions, connections, settings."""

import asyncio
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import override_settings

from holdfast.errors import EventLoopRunning, KeyConflict, NotFound, NotInstalled
from support.database import Database
from support.worker_thread import working

pytestmark = pytest.mark.usefixtures("django")


def app_and_tasks() -> tuple[Any, Any]:
    from holdfast.contrib.django import app
    from support.django_app import tasks

    return app, tasks


def count(db: Database) -> int:
    [found] = db.connect().execute("select count(*) from queues.task").fetchone() or [0]
    return int(found)


def test_a_task_is_enqueued_when_the_atomic_block_commits(db: Database) -> None:
    _, tasks = app_and_tasks()
    with transaction.atomic():
        tasks.double.enqueue(2)
        assert count(db) == 0
    assert count(db) == 1


def test_a_rollback_removes_the_task(db: Database) -> None:
    _, tasks = app_and_tasks()
    with transaction.atomic():
        handle = tasks.double.enqueue(2)
        assert handle.status() == "pending"
        transaction.set_rollback(True)
    assert count(db) == 0
    with pytest.raises(NotFound):
        handle.status()


def test_a_batch_belongs_to_the_atomic_block(db: Database) -> None:
    app, tasks = app_and_tasks()
    with transaction.atomic():
        tasks.double.enqueue_many([(1,), (2,)])
        app.enqueue_many([tasks.double.build(3)])
        transaction.set_rollback(True)
    assert count(db) == 0
    tasks.double.enqueue_many([(1,), (2,)])
    assert count(db) == 2


def test_a_batch_outside_a_transaction_is_all_or_nothing(db: Database) -> None:
    app, tasks = app_and_tasks()
    tasks.double.using(key="one").enqueue(1)
    with pytest.raises(KeyConflict):
        app.enqueue_many([tasks.double.build(3), tasks.double.using(key="one").build(2)])
    assert count(db) == 1


def test_a_refused_task_does_not_break_the_transaction_of_the_caller(db: Database) -> None:
    _, tasks = app_and_tasks()
    tasks.double.using(key="one").enqueue(1)
    with transaction.atomic():
        with pytest.raises(KeyConflict):
            tasks.double.using(key="one").enqueue(2)
        tasks.double.enqueue(3)
    assert count(db) == 2


def test_a_missing_schema_is_reported_with_the_command_of_django(db: Database) -> None:
    app, tasks = app_and_tasks()
    db.connect().execute("drop schema queues cascade")
    with pytest.raises(NotInstalled, match=r"Run python manage\.py migrate"):
        tasks.double.enqueue(1)
    with pytest.raises(NotInstalled, match=r"Run python manage\.py migrate"):
        app.enqueue_many([tasks.double.build(1)])


def test_a_cancellation_belongs_to_the_atomic_block() -> None:
    _, tasks = app_and_tasks()
    handle = tasks.double.enqueue(2)
    with transaction.atomic():
        assert handle.cancel() == "cancelled"
        transaction.set_rollback(True)
    assert handle.status() == "pending"


async def test_enqueueing_from_an_event_loop_is_asynchronous(db: Database) -> None:
    _, tasks = app_and_tasks()
    with pytest.raises(EventLoopRunning, match="aenqueue"):
        tasks.double.enqueue(1)
    handle = await tasks.double.aenqueue(1)
    assert await handle.astatus() == "pending"
    assert len(await tasks.double.aenqueue_many([(1,), (2,)])) == 2
    assert count(db) == 3
    await _close_connection_of_threads()


async def _close_connection_of_threads() -> None:
    from asgiref.sync import sync_to_async

    await sync_to_async(connections.close_all)()


def test_a_worker_closes_old_connections_around_each_run(db: Database) -> None:
    app, tasks = app_and_tasks()
    tasks.connected.clear()
    with working(app, db.dsn, worker_queues="shop", worker_concurrency=1):
        for _ in range(3):
            assert tasks.count_users.enqueue().result(30) > 0
            assert tasks.acount_users.enqueue().result(30) != "MainThread"
    assert tasks.connected == [False] * 6


def test_a_handler_enqueues_on_the_connection_of_its_thread(db: Database) -> None:
    app, tasks = app_and_tasks()
    with working(app, db.dsn, worker_queues="shop"):
        tasks.double_later.enqueue(4).result(30)
    assert count(db) == 2


def test_a_task_is_still_a_function() -> None:
    _, tasks = app_and_tasks()
    assert tasks.double(4) == 8
    assert asyncio.run(tasks.adouble(4)) == 8


def test_the_database_of_django_is_used_and_not_database_url(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.settings import Settings

    app, _ = app_and_tasks()
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/other")
    name = connections["default"].settings_dict["NAME"]
    assert f"dbname={name}" in app.database_url
    assert Settings.load().database_url == app.settings.database_url == app.database_url


def test_settings_of_the_project_are_between_pyproject_and_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, _ = app_and_tasks()
    assert app.settings.worker_concurrency == 7
    monkeypatch.setenv("WORKER_CONCURRENCY", "9")
    assert app.settings.worker_concurrency == 9


def test_the_name_of_the_app_comes_from_the_settings() -> None:
    app, _ = app_and_tasks()
    assert app.name == "django_tests"
    with override_settings(HOLDFAST={}, SETTINGS_MODULE="mysite.settings"):
        assert app.name == "mysite"
