"""An application: its tasks, and the database in which they are stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload
from uuid import UUID

from holdfast._connections.client import ARunStatement, Client, Progress, RunStatement
from holdfast._connections.enqueueing import EnqueueCounter, asend_checked, send_checked
from holdfast._connections.process_handle import ProcessHandle
from holdfast._connections.session import DatabaseAddress
from holdfast._engine import Statement
from holdfast._engine.enqueue import Enqueued, NewTask, When, enqueue_after, keep_together
from holdfast._engine.events import emit
from holdfast._engine.leases import run_function
from holdfast._engine.schedules import NewSchedule
from holdfast._telemetry.current_job import current_job
from holdfast._telemetry.tracing import with_trace
from holdfast._worker.handler import Handler, build_handler
from holdfast._worker.handler_options import BatchHandlerOptions, HandlerOptions
from holdfast._workflows.calls import missed_in_handlers
from holdfast.batch import Batch
from holdfast.errors import InvalidArgument, InvalidHandler
from holdfast.handle import Handle, handle_of
from holdfast.middleware import Middleware
from holdfast.options import is_arranged
from holdfast.schedule import ScheduleOptions, build_schedule
from holdfast.task import BatchDecorator, Decorator, Task

if TYPE_CHECKING:
    from holdfast.settings import Settings

T = TypeVar("T")


class DatabaseLocation:
    """The address of the database. Separate from the app, so that connections do not keep the app alive."""

    def __init__(self, database_url: str | None, settings: Settings | None) -> None:
        self._database_url = database_url
        self._settings = settings
        if settings and database_url:
            self._settings = settings.model_copy(update={"database_url": database_url})

    @property
    def settings(self) -> Settings:
        from holdfast.settings import Settings  # noqa: PLC0415 - takes a third of the time of importing an app

        if self._settings is None:
            self._settings = Settings.load(database_url=self._database_url)
        return self._settings

    def moved_to(self, database_url: str) -> DatabaseLocation:
        return DatabaseLocation(database_url, self._settings)

    def find(self) -> str:
        from holdfast._install.postgres.database_url import resolve_database_url  # noqa: PLC0415 - imports the settings
        from holdfast._install.schema import Choice, migrate  # noqa: PLC0415 - for the embedded server only

        url = resolve_database_url(self.settings)
        if self.settings.database_url is None:
            # The embedded server has no administrator who would do it.
            migrate(url, choice=Choice.of(self.settings))
        return url


class App:
    """Connects when it is first used, not at import.

    Without a database_url, the settings decide; without one there, an embedded PostgreSQL is started.
    """

    def __init__(
        self,
        database_url: str | None = None,
        *,
        settings: Settings | None = None,
        name: str | None = None,
        sends_messages: bool = False,
    ) -> None:
        """The name owns the schedules: without one here or in the settings, there can be none.

        If it sends messages, its workers serve the queue `comms`, unless they are told which queues to serve.
        """
        self._name = name
        self.sends_messages = sends_messages
        self.origin: str | None = None
        self.middlewares: list[Middleware] = []
        self._handlers: dict[str, Handler] = {}
        self.handlers: Mapping[str, Handler] = MappingProxyType(self._handlers)
        self._tasks: dict[str, Task[..., Any]] = {}
        self._schedules: dict[str, NewSchedule] = {}
        self.schedules: Mapping[str, NewSchedule] = MappingProxyType(self._schedules)
        self._location = DatabaseLocation(database_url, settings)
        self._address = DatabaseAddress(self._location.find)
        self._client: tuple[int, Client] | None = None

    @property
    def settings(self) -> Settings:
        """Read at first use, so that importing an app needs no environment."""
        return self._location.settings

    @property
    def name(self) -> str | None:
        """Given here, or by the setting `app_name`."""
        return self._name or self.settings.app_name

    @property
    def database_url(self) -> str:
        """The address of the database. May start the embedded server."""
        return self._address.get()

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        return MappingProxyType(self._tasks)

    @overload
    def task(
        self,
        type: str,
        **options: Unpack[BatchHandlerOptions],
    ) -> BatchDecorator: ...
    @overload
    def task(
        self,
        type: str,
        **options: Unpack[HandlerOptions],
    ) -> Decorator: ...
    def task(
        self,
        type: str,  # noqa: A002 - the name of it everywhere else
        **options: Any,
    ) -> Decorator | BatchDecorator:
        """Decorator: make a function the handler of a type. The function stays callable.

        With `batch`, the function takes a list with an item for each task, and returns a list of results.
        """
        task_type = type

        def register(function: Callable[..., Any], /) -> Task[..., Any]:
            return self._register(build_handler(task_type, function, **options))

        if not isinstance(task_type, str):
            raise InvalidHandler("write @app.task('billing.charge'): a task needs a type")
        return cast("Decorator | BatchDecorator", register)

    def schedule(self, cron: str | None = None, **options: Unpack[ScheduleOptions]) -> Callable[[T], T]:
        """Decorator: enqueue a task on a schedule. It goes above `@app.task`, once for each schedule."""

        def register(task: T) -> T:
            schedule = build_schedule(task, cron, **options)
            if schedule.name in self._schedules:
                raise InvalidHandler(
                    f"there is a schedule {schedule.name} already", hint="Give this one another name."
                )
            self._schedules[schedule.name] = schedule
            return task

        return register

    def middleware(self, middleware: Middleware) -> Middleware:
        """Wrap every run of every handler; the first one registered is the outermost."""
        self.middlewares.append(middleware)
        return middleware

    def enqueue_many(
        self,
        tasks: Iterable[NewTask],
        *,
        then: NewTask | None = None,
        when: When = "succeeded",
        tx: Any = None,
        progress: Progress | None = None,
    ) -> Batch[Any]:
        """Enqueue tasks of different types, each made by `task.build(…)`, all or nothing.

        `then` runs when all of them have succeeded, or with `when="ended"` when all have ended.
        """
        asked = _checked(tasks)
        if then is None:
            return self._batch(self.connect().enqueue_many(asked, tx, progress))
        [last] = _following([then])

        def work(run: RunStatement, on_front: bool) -> Batch[Any]:
            *first, after = keep_together([*asked, last]) if on_front else [*asked, last]
            count = EnqueueCounter(len(first), progress)
            enqueued = send_checked(first, run, count, on_front=on_front)
            [final] = run(enqueue_after([after], _ids(enqueued), when))
            return self._batch(enqueued, final)

        return self.connect().run_together(tx, work, "enqueue_many")

    @missed_in_handlers("app.aenqueue_many")
    async def aenqueue_many(
        self,
        tasks: Iterable[NewTask],
        *,
        then: NewTask | None = None,
        when: When = "succeeded",
        tx: Any = None,
        progress: Progress | None = None,
    ) -> Batch[Any]:
        asked = _checked(tasks)
        if then is None:
            return self._batch(await self.connect().aenqueue_many(asked, tx, progress))
        [last] = _following([then])

        async def work(run: ARunStatement, on_front: bool) -> Batch[Any]:
            *first, after = keep_together([*asked, last]) if on_front else [*asked, last]
            count = EnqueueCounter(len(first), progress)
            enqueued = await asend_checked(first, run, count, on_front=on_front)
            [final] = await run(enqueue_after([after], _ids(enqueued), when))
            return self._batch(enqueued, final)

        return await self.connect().arun_together(tx, work, "enqueue_many")

    def chain(self, *tasks: NewTask, tx: Any = None) -> Batch[Any]:
        """Enqueue tasks that run one after the other, each when the one before has succeeded."""
        asked = _following(tasks)

        def work(run: RunStatement, on_front: bool) -> Batch[Any]:
            enqueued: list[Enqueued] = []
            for task in keep_together(asked) if on_front else asked:
                enqueued += run(enqueue_after([task], _ids(enqueued[-1:]), "succeeded"))
            return self._batch(enqueued)

        return self.connect().run_together(tx, work, "chain")

    @missed_in_handlers("app.achain")
    async def achain(self, *tasks: NewTask, tx: Any = None) -> Batch[Any]:
        asked = _following(tasks)

        async def work(run: ARunStatement, on_front: bool) -> Batch[Any]:
            enqueued: list[Enqueued] = []
            for task in keep_together(asked) if on_front else asked:
                enqueued += await run(enqueue_after([task], _ids(enqueued[-1:]), "succeeded"))
            return self._batch(enqueued)

        return await self.connect().arun_together(tx, work, "chain")

    def emit(
        self, event_type: str, payload: Any = None, aggregate_id: str | None = None, *, tx: Any = None
    ) -> UUID:
        """Emit an event to its subscriptions. Returns the id of the event."""
        return self.connect().run_in(tx, _event(event_type, payload, aggregate_id), "emit")

    @missed_in_handlers("app.aemit")
    async def aemit(
        self, event_type: str, payload: Any = None, aggregate_id: str | None = None, *, tx: Any = None
    ) -> UUID:
        return await self.connect().arun_in(tx, _event(event_type, payload, aggregate_id), "emit")

    def handle(self, task_id: UUID | str) -> Handle[Any]:
        """The handle of a task that was enqueued before, possibly by another program."""
        return handle_of(task_id, self)

    def schema(self) -> dict[str, Any]:
        """Every task by type, with its options and the JSON schemas of its arguments and its result."""
        return {task_type: handler.described() for task_type, handler in sorted(self._handlers.items())}

    def run_worker(self, *, shard: str | None = None, **options: Any) -> int:
        """Run a worker for these tasks in this process until it is asked to stop. Takes settings by name.

        With a shard, the worker connects to it. Handlers that use the app still use the front.
        """
        from holdfast._worker.worker_process import run  # noqa: PLC0415 - not needed by programs that only enqueue
        from holdfast.settings import Settings  # noqa: PLC0415 - as above

        given = self.settings.model_dump(exclude_unset=True)
        elsewhere = options.get("database_url")
        if shard is not None:
            options["database_url"] = Settings.load(**given | options).shard_url(shard)
        # Handlers that use the app use the same database.
        with self.at(elsewhere) if elsewhere else nullcontext():
            return run(self, settings=Settings.load(**given | options))

    def process(self, process: str, process_id: int) -> ProcessHandle:
        """The handle of a business process that was kicked off: `app.process("shipping", 7)`."""
        return ProcessHandle(process, process_id, self)

    def call_function(self, function: str, payload: Any, *, tx: Any = None) -> Any:
        """Call a function of a business process, as a worker does, and return its envelope.

        In a handler, it acts for the namespace of the task that runs.
        """
        return self.connect().run_in(tx, run_function(function, payload, _running_task()), "call_function")[0]

    @missed_in_handlers("app.acall_function")
    async def acall_function(self, function: str, payload: Any, *, tx: Any = None) -> Any:
        statement = run_function(function, payload, _running_task())
        return (await self.connect().arun_in(tx, statement, "call_function"))[0]

    def connect(self) -> Client:
        """The connections of this OS process. A fork gets its own: on a shared one, answers would mix."""
        if self._client is None or self._client[0] != os.getpid():
            self._client = (os.getpid(), self._new_client())
        return self._client[1]

    def close(self) -> None:
        """Close all connections. The next call opens them again."""
        client, self._client = self._client, None
        if client is not None and client[0] == os.getpid():
            client[1].close()

    @contextmanager
    def at(self, database_url: str) -> Iterator[None]:
        """Use another database inside the block: for tests."""
        before = self._location, self._address
        self.close()
        self._location = self._location.moved_to(database_url)
        self._address = DatabaseAddress(self._location.find)
        try:
            yield
        finally:
            self.close()
            self._location, self._address = before

    def _new_client(self) -> Client:
        return Client(self._address, self.settings.call_timeout.total_seconds())

    def _register(self, handler: Handler) -> Task[..., Any]:
        if handler.type in self._handlers:
            raise InvalidHandler(
                f"{handler.type} already has a handler: {self._handlers[handler.type].function!r}",
                hint="Give one of them another type, such as a new version.",
            )
        self._handlers[handler.type] = handler
        task: Task[..., Any] = Task(self, handler, handler.declared)
        self._tasks[handler.type] = task
        return task

    def _batch(self, enqueued: Iterable[Enqueued], then: Enqueued | None = None) -> Batch[Any]:
        after = None if then is None else self._handle(then.task_id, then.created)
        return Batch([self._handle(one.task_id, one.created) for one in enqueued], self, after)

    def _handle(self, task_id: UUID, created: bool | None) -> Handle[Any]:
        return Handle(task_id, created=created, home=self)


def _running_task() -> UUID | None:
    """The task whose handler calls, if one does."""
    job = current_job.get()
    task_id = None if job is None else job.log_fields.get("task_id")
    return None if task_id is None else UUID(str(task_id))


def _event(event_type: str, payload: Any, aggregate_id: str | None) -> Statement[UUID]:
    trace = with_trace(None) or {}
    return emit(event_type, payload, aggregate_id, traceparent=trace.get("traceparent"))


def _ids(enqueued: Iterable[Enqueued]) -> list[UUID]:
    return [one.task_id for one in enqueued]


def _checked(tasks: Iterable[NewTask]) -> list[NewTask]:
    asked = list(tasks)
    for place, task in enumerate(asked):
        if not isinstance(task, NewTask):
            raise InvalidArgument(f"tasks[{place}] is {task!r}", hint="Make it with task.build(…).")
    return asked


def _following(tasks: Iterable[NewTask]) -> list[NewTask]:
    """Tasks whose place the batch or the chain decides."""
    asked = _checked(tasks)
    if any(is_arranged(task.options) for task in asked):
        raise InvalidArgument(
            "a task that comes after a batch, or of a chain, has no options after, unique or debounce"
        )
    return asked
