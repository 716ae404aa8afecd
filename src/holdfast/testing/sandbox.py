"""The fixture `holdfast`: a database, its clock, and methods to inspect and run tasks."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Any, Literal
from uuid import UUID

import psycopg

from holdfast._engine import Engine, messages, tasks
from holdfast._engine import steps as engine_steps
from holdfast._engine.messages import MailboxMessage
from holdfast._engine.tasks import ENDED, Status, TaskFilter, TaskStatus
from holdfast._worker.handler import Handler
from holdfast._worker.jobs import Job
from holdfast.app import App
from holdfast.errors import InvalidArgument, NotFound
from holdfast.handle import Handle
from holdfast.outcome import OUTCOMES
from holdfast.settings import Settings
from holdfast.task import Task
from holdfast.testing.clock import Clock
from holdfast.testing.drain import Drain, Ran
from holdfast.testing.enqueued import Expectation, explain_count
from holdfast.testing.given_memory import GivenMemory
from holdfast.testing.inline_runner import (
    InlineRunner,
    RecordingReporter,
    UnrecordedTransaction,
    job_without_task,
)
from holdfast.testing.interruptions import Interruptions

AnyTask = Task[..., Any, Any] | Handler | str
"""The result of `app.task`, its handler, or the name of a type."""

WAITING: tuple[Status, ...] = ("scheduled", "pending", "retrying")
_PAGE = 10_000

_MAY_BECOME_WORKER = """
  select coalesce(bool_or(pg_has_role(current_user, r.oid, 'member')), false)
  from pg_roles r where r.rolname = 'holdfast_worker'"""


class Sandbox:
    """One database, created for one test and dropped after it."""

    _drain_class = Drain

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._apps: list[App] = []
        self._open = ExitStack()

    def __repr__(self) -> str:
        return f"<Sandbox at {self.dsn}>"

    @cached_property
    def clock(self) -> Clock:
        """The clock of the whole engine in this database."""
        return Clock(self._engine)

    def use(self, app: App) -> App:
        """Connect an app to this database until the test ends. Several apps may share it."""
        if app not in self._apps:
            self._open.enter_context(app.at(self.dsn))
            self._apps.append(app)
            for handler in app.handlers.values():
                if changes := handler.changes:
                    self._worker.run(engine_steps.record_changes(handler.type, changes))
        return app

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """Open a connection, with autocommit by default. It is closed after the test."""
        connection = psycopg.connect(self.dsn, **{"autocommit": True} | options)
        self._open.callback(connection.close)
        return connection

    def close(self) -> None:
        self._open.close()

    def task(self, task_id: UUID | str | Handle[Any]) -> TaskStatus:
        """The status of a task."""
        given = task_id.task_id if isinstance(task_id, Handle) else UUID(str(task_id))
        found = self._engine.run(tasks.task_status(given))
        if found is None:
            raise NotFound(f"there is no task {given}", hint="Was its transaction committed?")
        return found

    def enqueued(self, task: AnyTask | None = None) -> list[TaskStatus]:
        """The tasks that wait, including scheduled and retrying ones, in the order of their enqueueing."""
        wanted = None if task is None else _type_of(task)
        waiting = [found for status in WAITING for found in list_tasks(self._engine, status, wanted)]
        return sorted(
            (found for found in waiting if wanted in (None, found.type)), key=lambda found: found.task_id
        )

    def assert_enqueued(
        self, task: AnyTask, /, count: int | None = None, queue: str | None = None, **arguments: Any
    ) -> list[TaskStatus]:
        """Fail unless at least one such task waits, or exactly `count`. Others may have any value."""
        __tracebackhide__ = True  # pytest shows the line of the test
        expected = self._expect(task, queue, arguments)
        waiting = self.enqueued()
        found = [candidate for candidate in waiting if expected.matches(candidate)]
        if not found if count is None else len(found) != count:
            wanted = "at least one" if count is None else f"exactly {count}"
            ended = [task for task in list_tasks(self._engine, None, expected.type) if task.status in ENDED]
            told = sum(expected.matches(task) for task in ended)
            raise AssertionError(explain_count(expected, len(found), wanted, waiting, told))
        return found

    def assert_not_enqueued(self, task: AnyTask, /, queue: str | None = None, **arguments: Any) -> None:
        __tracebackhide__ = True  # pytest shows the line of the test
        expected = self._expect(task, queue, arguments)
        waiting = self.enqueued()
        found = [candidate for candidate in waiting if expected.matches(candidate)]
        if found:
            raise AssertionError(explain_count(expected, len(found), "none", waiting))

    def mailbox(self, recipient: str | None = None) -> list[MailboxMessage]:
        """The e-mails and text messages that were sent, oldest first; all of them, or to one recipient."""
        found = self._engine.run(messages.list_mailbox(recipient=recipient, limit=_PAGE))
        return found[::-1]

    def drain(
        self,
        app: App | None = None,
        *,
        until: datetime | timedelta | None = None,
        limit: int = 1000,
        replay: Literal["always"] | None = None,
        crash_after: str | None = None,
    ) -> list[Ran]:
        """Run what is due, one task after the other, in this thread, and return every attempt.

        The clock is stopped meanwhile. With `until`, it is advanced from one due task to the next, up to
        then, and the schedules of the apps fire. Without an app, all tasks are run; with one, only those
        that it has a handler for.

        With `replay="always"`, an attempt ends after every recorded step, and the next one goes on from
        memory; a run that comes to another end when it is replayed raises ReplayDiffers. With
        `crash_after`, the worker dies once in each run, after this step has run and before it is recorded.
        """
        _refuse_running_loop("drain", "adrain")
        with self._drain(app, limit, replay, crash_after) as drain:
            return drain.run(until)

    async def adrain(
        self,
        app: App | None = None,
        *,
        until: datetime | timedelta | None = None,
        limit: int = 1000,
        replay: Literal["always"] | None = None,
        crash_after: str | None = None,
    ) -> list[Ran]:
        """The same in the running event loop; plain functions run in a thread."""
        with self._drain(app, limit, replay, crash_after) as drain:
            return await drain.arun(until)

    def run_task(
        self,
        task: Task[..., Any, Any] | Handler,
        /,
        *,
        steps: Mapping[str, Any] | None = None,
        signals: Mapping[str, Sequence[Any]] | None = None,
        **arguments: Any,
    ) -> Any:
        """Run a handler alone, as a worker would: through JSON and back, with a context, behind middleware.

        Returns its result or outcome, or raises what it raised. Nothing is enqueued. Steps with a result in
        `steps` are not run; one whose result is an exception has failed with it. Waits take `signals`, and
        sleeps and timeouts are over at once.
        """
        _refuse_running_loop("run_task", "arun_task")
        memory = GivenMemory(self.clock.now().timestamp(), steps or {}, signals or {})
        recorder, runner, job = self._alone(task, arguments, memory)
        with closing(runner), asyncio.Runner() as loop:
            runner.run(job, loop)
        return _ending(recorder, _handler_of(task), memory)

    async def arun_task(
        self,
        task: Task[..., Any, Any] | Handler,
        /,
        *,
        steps: Mapping[str, Any] | None = None,
        signals: Mapping[str, Sequence[Any]] | None = None,
        **arguments: Any,
    ) -> Any:
        """The same in the running event loop; a plain function runs in a thread."""
        memory = GivenMemory(self.clock.now().timestamp(), steps or {}, signals or {})
        recorder, runner, job = self._alone(task, arguments, memory)
        with closing(runner):
            await runner.arun(job)
        return _ending(recorder, _handler_of(task), memory)

    @cached_property
    def _engine(self) -> Engine:
        return Engine(self.connect())

    @cached_property
    def _worker(self) -> Engine:
        """Has the rights of a worker in production."""
        connection = self.connect()
        if connection.execute(_MAY_BECOME_WORKER).fetchone() == (True,):
            connection.execute("set role holdfast_worker")
        return Engine(connection)

    def _expect(self, task: AnyTask, queue: str | None, arguments: dict[str, Any]) -> Expectation:
        named = (
            (app.handlers.get(task) for app in self._apps) if isinstance(task, str) else [_handler_of(task)]
        )
        handler = next((one for one in named if one is not None), None)
        return Expectation(_type_of(task), handler, queue, arguments)

    def _drain(
        self, app: App | None, limit: int, replay: str | None = None, crash_after: str | None = None
    ) -> closing[Drain]:
        if replay not in (None, "always"):
            raise InvalidArgument(f"replay is {replay!r}: give 'always', or leave it out")
        apps = self._apps if app is None else [self.use(app)]
        if not apps:
            raise InvalidArgument("there is no app to drain", hint="Call use(app) first, or pass the app.")
        return closing(
            self._drain_class(
                self.dsn,
                self._worker,
                self._engine,
                self.clock,
                apps,
                only_theirs=app is not None,
                limit=limit,
                interruptions=Interruptions(replay=replay is not None, crash_after=crash_after),
            )
        )

    def _alone(
        self, task: Task[..., Any, Any] | Handler, arguments: dict[str, Any], memory: GivenMemory
    ) -> tuple[RecordingReporter, InlineRunner, Job]:
        handler, recorder = _handler_of(task), RecordingReporter(self.clock)
        home = next((app for app in self._apps if app.handlers.get(handler.type) is handler), None)
        runner = InlineRunner(
            recorder,
            {handler.type: handler},
            () if home is None else home.middlewares,
            partial(UnrecordedTransaction, self.dsn),
            open_run=partial(
                memory.open_run,
                self.dsn,
                changes=handler.changes,
                settings=Settings.load if home is None else lambda: home.settings,
            ),
        )
        payload = handler.arguments.check((), arguments)
        return recorder, runner, job_without_task(handler, payload, self.clock.now().timestamp())


def _handler_of(task: Task[..., Any, Any] | Handler) -> Handler:
    return task if isinstance(task, Handler) else task.handler


def _type_of(task: AnyTask) -> str:
    return task if isinstance(task, str) else task.type


def _ending(recorder: RecordingReporter, handler: Handler, memory: GivenMemory) -> Any:
    for outcome in (recorder.value, recorder.error):
        if isinstance(outcome, OUTCOMES):
            return outcome
    if recorder.error is not None:
        raise recorder.error
    memory.check()
    return handler.result.load(handler.result.encode(recorder.value))


def _refuse_running_loop(called: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{called} was called in a running event loop: await {instead} there")


def list_tasks(engine: Engine, status: Status | None, type_prefix: str | None) -> list[TaskStatus]:
    matching, listed = TaskFilter(status=status, type_prefix=type_prefix), list[TaskStatus]()
    found = engine.run(tasks.find_tasks(matching, None, _PAGE))
    while True:
        listed += engine.run(tasks.tasks_with_ids(found.task_ids))
        if found.next is None:
            return listed
        found = engine.run(tasks.find_tasks(matching, found.next, _PAGE))
