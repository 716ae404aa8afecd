"""The application of a Django project: its tasks use Django's database, settings and connections."""

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from holdfast._connections.client import Client
from holdfast._worker.handler import Handler
from holdfast._worker.subscription import subscribed
from holdfast.app import App, DatabaseLocation
from holdfast.contrib.django.client import DjangoAddress, DjangoClient, default_alias
from holdfast.contrib.django.conf import dsn_of, project_name
from holdfast.settings import Settings
from holdfast.task import Task


class DjangoApp(App):
    """An App that enqueues on Django's connection, so that a rollback also removes the task.

    Without a database, HOLDFAST["DATABASE"] names it, and without that it is `default`.
    """

    def __init__(self, *, database: str | None = None, name: str | None = None) -> None:
        super().__init__(name=name)
        find_alias = default_alias if database is None else lambda: database
        self._location = _DjangoLocation(find_alias)
        self._address = DjangoAddress(find_alias)
        self.handlers = _Handlers(self._handlers)

    @property
    def name(self) -> str:
        return self._name or project_name()

    def run_worker(self, **options: Any) -> int:
        """Run a worker. Without other queues, it serves those of the app and of the TASKS setting."""
        from holdfast.contrib.django.task_runs import task_queues  # noqa: PLC0415 - needs Django's apps

        settings = Settings.load(**self.settings.model_dump(exclude_unset=True) | options)
        queues = task_queues()
        if queues and not (settings.worker_queues or settings.worker_type_prefixes):
            own = subscribed(self, settings).worker_queues if self._handlers or self._schedules else ()
            options["worker_queues"] = ",".join(sorted({*own, *queues}))
        return super().run_worker(**options)

    def _new_client(self) -> Client:
        # `at` puts another address in place: then all calls go to that database.
        if isinstance(self._address, DjangoAddress):
            return DjangoClient(self._address, self.settings.call_timeout.total_seconds())
        return super()._new_client()

    def _register(self, handler: Handler) -> Task[..., Any]:
        function = with_fresh_connections(handler.function, handler.is_async)
        batch = handler.batch
        if batch is not None:
            batch = replace(batch, function=with_fresh_connections(batch.function, handler.is_async))
        super()._register(replace(handler, function=function, batch=batch))
        task: Task[..., Any] = Task(self, self._handlers[handler.type], handler.declared)
        self._tasks[handler.type] = task
        return task


class _DjangoLocation(DatabaseLocation):
    """The settings are read at each use, because tests override them."""

    def __init__(self, alias: Callable[[], str]) -> None:
        super().__init__(None, None)
        self._alias = alias

    @property
    def settings(self) -> Settings:
        return Settings.load(database_url=dsn_of(self._alias()))

    def find(self) -> str:
        return dsn_of(self._alias())


class _Handlers(Mapping[str, Handler]):
    """The handlers of the app. Looked up by type, also those of `django.tasks`, which are not registered."""

    def __init__(self, registered: Mapping[str, Handler]) -> None:
        self._registered = registered
        self._found: dict[str, Handler] = {}

    def __getitem__(self, task_type: str) -> Handler:
        handler = self._registered.get(task_type) or self._found.get(task_type)
        if handler is None:
            from holdfast.contrib.django.task_runs import find_handler  # noqa: PLC0415 - needs Django's apps

            handler = self._found[task_type] = find_handler(task_type)
        return handler

    def __iter__(self) -> Iterator[str]:
        return iter(self._registered)

    def __len__(self) -> int:
        return len(self._registered)


def with_fresh_connections(function: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
    """The function with what Django does around a request: connections that are too old or broken are closed.

    A worker lives longer than its database connections may.
    """
    if is_async:

        @wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            await sync_to_async(_close_old_connections)()
            try:
                return await function(*args, **kwargs)
            finally:
                await sync_to_async(_close_old_connections)()

        return run_async

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            _close_old_connections()

    return run


keeps_connections: ContextVar[bool] = ContextVar("keeps_connections", default=False)
"""Set where a test runs the tasks: the connection of the test has to stay open."""


def _close_old_connections() -> None:
    if not keeps_connections.get():
        close_old_connections()
