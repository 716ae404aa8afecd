"""One attempt: bind the arguments, call the handler within its limit, end its run, and report or commit.

The sequence is written once, in `making`. Each `yield` is something that a `Way` does: in an event loop it is
awaited; in a thread it has been done already. Workers, child processes and the test plugin all use it.
"""

import functools
import json
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from holdfast._serialization.failure import brief
from holdfast._telemetry.logs import Log
from holdfast._worker.executor import CannotStart
from holdfast._worker.handler import Handler
from holdfast._worker.report import (
    AttemptEnd,
    AttemptTask,
    CommitUnknown,
    NotDecoded,
    Reports,
    error_in,
)
from holdfast._workflows.ends import Continued, Suspended
from holdfast.context import Context, SyncContext
from holdfast.errors import PayloadError
from holdfast.middleware import Call, Middleware
from holdfast.outcome import OUTCOMES

R = TypeVar("R")
T = TypeVar("T")
Work = Generator[Any, Any, T]


class Attempt(Generic[R]):
    """What is called, and what is reported about it."""

    __slots__ = ("_log", "_reports", "handler", "task")

    def __init__(self, task: Any, handler: Handler, reports: Reports[Any], log: Log) -> None:
        """Of a batch, the first task stands for all."""
        self.task = task
        self.handler = handler
        self._reports = reports
        self._log = log

    @property
    def run(self) -> Any:
        """The `Run` of a handler with steps, or None."""
        return self.task.run

    @property
    def transaction(self) -> Any:
        return None

    def bind(self) -> Callable[[], Any]:
        """The handler with its arguments. Raises NotDecoded."""
        raise NotImplementedError

    def open_run(self) -> Any:
        raise NotImplementedError

    def limit(self) -> float | None:
        """The seconds that the handler has from now on."""
        return None

    def begins(self, watched: Any) -> None:
        """In a thread, where the `WatchedHandler` can interrupt it."""

    def returned(self, value: Any) -> R:
        """The report about a value. Raises NotEncoded."""
        report: R = self._reports.returned(self.task, self.handler, value)
        return report

    def raised(self, error: BaseException) -> R | None:
        """The report about an error, or None if the task was taken from this worker."""
        task = self.task
        if isinstance(error, CommitUnknown):
            self._log.warning("commit_unknown", **task.log_fields, error=brief(error))
            return self._report_of(error)
        if task.stop is not None:
            return None
        if self.run is not None and self.run.suspended is not None:
            suspended: R = self._reports.write(task, AttemptEnd("suspend"))
            return suspended
        error = error_in(task.calls, error)
        if not isinstance(error, (*OUTCOMES, Continued)):
            self._log.warning("attempt_failed", **task.log_fields, error=brief(error))
        return self._report_of(error)

    def _report_of(self, error: BaseException) -> R:
        report: R = self._reports.raised(self.task, self.handler, error)
        return report


class Way(Protocol):
    """Where an attempt is made. What the methods return is awaited in an event loop."""

    def load(self, run: Any, /) -> Any: ...
    def call(self, attempt: Attempt[Any], bound: Callable[[], Any], /) -> Any: ...
    def end_run(self, run: Any, /) -> Any: ...
    def commit(self, attempt: Any, report: Any, /) -> Any: ...
    def roll_back(self, transaction: Any, /) -> Any: ...


def making(attempt: Attempt[R], way: Way) -> Work[R | None]:
    """Make an attempt, and return its report.

    It returns None if there is nothing to report: the handler's own transaction has recorded the outcome, or
    the task was taken from this worker. Raises CannotStart.
    """
    try:
        bound = attempt.bind()
        if attempt.handler.remembers_first:
            yield way.load(attempt.open_run())
        value = yield way.call(attempt, bound)
        if (run := attempt.run) is not None:
            yield from _ending(run, way)
        report = attempt.returned(value)
        if attempt.transaction is None:
            return report
        yield way.commit(attempt, report)
    except CannotStart:
        raise
    except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends the task, not the worker
        if attempt.transaction is not None:
            yield way.roll_back(attempt.transaction)
        if attempt.run is not None and attempt.task.stop is None:
            try:
                yield from _ending(attempt.run, way)
            except BaseException as problem:  # noqa: BLE001 - it takes the place of the error
                if attempt.run.suspended is None:
                    return attempt.raised(problem)
        return attempt.raised(error)
    return None


def _ending(run: Any, way: Way) -> Work[None]:
    yield way.end_run(run)
    if run.suspended is not None:
        raise Suspended  # the handler has caught it


def blocking(work: Work[T]) -> T:
    """Perform it in this thread."""
    result = None
    try:
        while True:
            result = work.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def awaiting(work: Work[T]) -> T:
    """Perform it in the event loop."""
    try:
        call = next(work)
        while True:
            try:
                result = await call
            except BaseException as error:  # noqa: BLE001 - the work judges it
                call = work.throw(error)
            else:
                call = work.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def bind_call(
    task: AttemptTask,
    handler: Handler,
    send_progress: Callable[[], None],
    open_transaction: Callable[[], Any],
    open_run: Callable[[], Any],
) -> Callable[[], Any]:
    """The handler with its arguments, and with its context if it takes one."""
    try:
        arguments = handler.arguments.decode(task.payload)
    except PayloadError as error:
        raise NotDecoded(str(error)) from error
    if handler.wants_context:
        context = Context if handler.is_async else SyncContext
        return functools.partial(
            handler.function, context(task, send_progress, open_transaction, open_run), **arguments
        )
    return functools.partial(handler.function, **arguments)


def through_middleware(
    middlewares: Sequence[Middleware], task: AttemptTask, proceed: Callable[[], Awaitable[Any]]
) -> Callable[[], Awaitable[Any]]:
    """The call inside its middleware; the first middleware is the outermost."""
    call = _describe_call(task)
    for middleware in reversed(middlewares):
        proceed = functools.partial(middleware, call, proceed)
    return proceed


def _describe_call(task: AttemptTask) -> Call:
    try:
        metadata = {} if task.metadata is None else json.loads(task.metadata)
        return Call(task.type, task.task_id, task.attempt, json.loads(task.payload), metadata)
    except (ValueError, RecursionError) as error:  # JSON that PostgreSQL stores and Python cannot read
        raise NotDecoded(f"the payload of {task.type} cannot be read: {error}") from error
