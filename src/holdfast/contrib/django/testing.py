"""Tests of a Django project: tasks run in the test's own transaction, on Django's connection.

With pytest, use the fixture in `holdfast.contrib.django.fixtures`. In a TestCase, make a `Sandbox()`.
"""

import asyncio
import contextvars
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal, TypeVar

import psycopg
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections
from django.test.utils import _TestState

from holdfast import testing
from holdfast._engine import Engine, clock, health, tasks
from holdfast._install.schema import install_test_clock
from holdfast._worker.handler import Handler
from holdfast.app import App
from holdfast.contrib.django.app import DjangoApp, keeps_connections
from holdfast.contrib.django.checks import find_app
from holdfast.contrib.django.conf import dsn_of, read_conf
from holdfast.errors import InvalidArgument
from holdfast.task import Task
from holdfast.testing.drain import Drain, Ran
from holdfast.testing.inline_runner import CoroutineRunner
from holdfast.testing.sandbox import list_tasks

__all__ = ["Ran", "Sandbox"]

T = TypeVar("T")


class _DjangoEngine(Engine):
    """Runs statements on Django's connection of the test's thread, which is another one after a reconnect."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._last: psycopg.Connection[Any] | None = None

    @property
    def connection(self) -> psycopg.Connection[Any]:  # type: ignore[override] # never set
        # The loop of an asynchronous handler has a thread of its own, and the test's thread waits for it.
        if self._last is None or not _in_event_loop():
            connections[self._alias].ensure_connection()
            self._last = connections[self._alias].connection
        found: psycopg.Connection[Any] = self._last
        return found


class _Loop:
    """Runs coroutines so that the ORM calls in them use the connection of the test's thread."""

    def run(self, coro: Coroutine[Any, Any, T], *, context: contextvars.Context | None = None) -> T:
        async def run() -> T:
            return await coro

        del context  # async_to_sync copies it
        result: T = async_to_sync(run)()
        return result


class _DjangoDrain(Drain):
    def run(self, until: datetime | timedelta | None) -> list[Ran]:
        with _keeping_connections():
            return super().run(until)

    def new_loop(self) -> AbstractContextManager[CoroutineRunner]:
        return nullcontext(_Loop())


class Sandbox(testing.Sandbox):
    """The tasks of a test. What it enqueued and did not commit is there, too.

    Functions in the database, messages and `ctx.transaction()` use connections of their own: they need a test
    that commits (TransactionTestCase, or `django_db(transaction=True)`).
    """

    _drain_class = _DjangoDrain

    def __init__(self) -> None:
        conf = read_conf()
        self._alias = conf.database
        if not hasattr(_TestState, "saved_data"):
            raise InvalidArgument(
                "a sandbox changes the clock of the database", hint="Use it only in tests of Django."
            )
        super().__init__(dsn_of(self._alias))
        self._engine.run(health.clock())  # says what to do if the schema is missing
        if not self._engine.run(clock.has_test_clock()):
            install_test_clock(self.dsn)
        self.use(find_app(conf.app))

    @cached_property
    def _engine(self) -> Engine:
        return _DjangoEngine(self._alias)

    @cached_property
    def _worker(self) -> Engine:
        return self._engine

    def use(self, app: App) -> App:
        """Also run the tasks of this app."""
        if not isinstance(app, DjangoApp):
            raise InvalidArgument(
                f"{app.name} is an App, whose tasks do not use Django's connection",
                hint="Make it a DjangoApp: from holdfast.contrib.django import DjangoApp.",
            )
        if app not in self._apps:
            self._apps.append(app)
        return app

    async def adrain(
        self,
        app: App | None = None,
        *,
        until: datetime | timedelta | None = None,
        limit: int = 1000,
        replay: Literal["always"] | None = None,
        crash_after: str | None = None,
    ) -> list[Ran]:
        """Run what is due, from an asynchronous test."""
        drained: list[Ran] = await sync_to_async(self.drain)(
            app, until=until, limit=limit, replay=replay, crash_after=crash_after
        )
        return drained

    def run_task(
        self,
        task: Task[..., Any, Any] | Handler,
        /,
        *,
        steps: Mapping[str, Any] | None = None,
        signals: Mapping[str, Sequence[Any]] | None = None,
        **arguments: Any,
    ) -> Any:
        """Run a handler alone, as a worker would, in the transaction of the test."""
        with _keeping_connections():
            return super().run_task(task, steps=steps, signals=signals, **arguments)

    def close(self) -> None:
        """Delete the tasks of a test that commits. Those of others are rolled back."""
        if not connections[self._alias].in_atomic_block:
            for found in list_tasks(self._engine, None, None):
                self._engine.run(tasks.delete_task(found.task_id))
            self.clock.reset()
        super().close()


@contextmanager
def _keeping_connections() -> Iterator[None]:
    token = keeps_connections.set(True)
    try:
        yield
    finally:
        keeps_connections.reset(token)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
