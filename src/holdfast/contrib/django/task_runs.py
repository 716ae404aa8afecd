"""Runs tasks of `django.tasks` in a worker: as handlers of Holdfast, with Django's signals."""

from asyncio import CancelledError
from collections.abc import Callable
from datetime import timedelta
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.utils import timezone

from holdfast._connections.transaction import run_in
from holdfast._engine import tasks
from holdfast._worker.handler import Handler, build_handler
from holdfast.context import Context, SyncContext, TaskContext
from holdfast.contrib.django import compat
from holdfast.contrib.django.app import with_fresh_connections
from holdfast.contrib.django.task_results import BACKEND, find_task
from holdfast.outcome import OUTCOMES, Cancel, Fail
from holdfast.retry import DEFAULT_RETRY, RetryPolicy, next_delay

_DELAY = "_holdfast_delay"


def task_queues() -> set[str]:
    """The queues of the backends in the TASKS setting that are ours."""
    return {queue for backend in _backends() for queue in backend.queues or {"default"}}


def find_handler(task_type: str) -> Handler:
    """The handler of a task of `django.tasks`, whose type is its module path. Raises KeyError."""
    task = find_task(task_type) if _backends() else None
    if task is None:
        raise KeyError(task_type)
    is_async = iscoroutinefunction(task.func)
    return build_handler(
        task_type,
        with_fresh_connections(_async_function(task) if is_async else _function(task), is_async),
        queue=task.queue_name,
        retry=_DecidedInRun(),
    )


def _backends() -> list[Any]:
    """The backends of the project that are ours. The classes are imported only where django.tasks is."""
    if not getattr(settings, "TASKS", None) or not compat.is_available():
        return []
    from holdfast.contrib.django.backend import HoldfastBackend  # noqa: PLC0415 - needs django.tasks

    return [one for one in compat.load().task_backends.all() if isinstance(one, HoldfastBackend)]


def _function(task: Any) -> Callable[..., Any]:
    def run_task(ctx: SyncContext, args: list[Any] = [], kwargs: dict[str, Any] = {}) -> Any:  # noqa: B006 - never changed
        run = _Run(task, ctx)
        run.start()
        try:
            return run.finish(task.func(*run.leading, *args, **kwargs))
        except BaseException as error:
            run.fail(error)
            raise

    return run_task


def _async_function(task: Any) -> Callable[..., Any]:
    async def run_task(ctx: Context, args: list[Any] = [], kwargs: dict[str, Any] = {}) -> Any:  # noqa: B006 - as above
        run = _Run(task, ctx)
        await sync_to_async(run.start)()
        try:
            return await sync_to_async(run.finish)(await task.func(*run.leading, *args, **kwargs))
        except BaseException as error:
            await sync_to_async(run.fail)(error)
            raise

    return run_task


class _Run:
    """One attempt. Signals are sent here, before the worker has reported how the attempt ended."""

    def __init__(self, task: Any, ctx: TaskContext) -> None:
        self._task = task
        self._ctx = ctx
        self._backend = self._find_backend()
        self._result: Any = None
        self._finished = False

    @property
    def leading(self) -> tuple[Any, ...]:
        """Django's context, for tasks that take it."""
        if not self._task.takes_context:
            return ()
        return (compat.load(".base").TaskContext(task_result=self._result),)

    def start(self) -> None:
        row = run_in(self._backend.database(), tasks.task_status(self._ctx.task_id), "get_result")
        if row is None:
            raise LookupError(f"task {self._ctx.task_id} cannot be read by the worker's login")
        self._result = self._backend.read_row(row)
        self._send("task_started", status="RUNNING")

    def finish(self, value: Any) -> Any:
        """The value as JSON. Outcomes of Holdfast pass."""
        if isinstance(value, OUTCOMES):
            if isinstance(value, Cancel | Fail):
                self._send("task_finished", status="FAILED", finished_at=timezone.now())
            return value
        normal = compat.normalize_json(value)
        self._finished = True
        self._send("task_finished", status="SUCCESSFUL", finished_at=timezone.now(), _return_value=normal)
        return normal

    def fail(self, error: BaseException) -> None:
        """Decide on the next attempt. If there is none, the task has finished."""
        if self._finished or self._ctx.should_stop or isinstance(error, (*OUTCOMES, KeyboardInterrupt)):
            return
        kind = TimeoutError if isinstance(error, CancelledError) else type(error)
        described = compat.load(".base").TaskError(
            exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
            traceback="".join(format_exception(error)),
        )
        self._result.errors.append(described)
        delay = self._delay(error)
        setattr(error, _DELAY, delay)
        if delay is None or self._ctx.attempt >= self._ctx.max_attempts:
            self._send("task_finished", status="FAILED", finished_at=timezone.now())

    def _delay(self, error: BaseException) -> float | None:
        if isinstance(error, TypeError) and str(error).startswith("Unsupported type"):
            return None  # another attempt would return the same
        backoff = getattr(self._task, "backoff", None)
        if backoff is None or isinstance(backoff, RetryPolicy):
            return next_delay(backoff or DEFAULT_RETRY, self._ctx.attempt, error)
        return next_delay(_Backoff(backoff, self._result), self._ctx.attempt, error)

    def _send(self, signal: str, **changes: Any) -> None:
        """A receiver that raises must not fail the task; Django logs it."""
        statuses = compat.load(".base").TaskResultStatus
        for name, value in changes.items():
            object.__setattr__(self._result, name, statuses[value] if name == "status" else value)
        getattr(compat.load(".signals"), signal).send_robust(type(self._backend), task_result=self._result)

    def _find_backend(self) -> Any:
        ours = {one.alias: one for one in _backends()}
        return ours.get(self._ctx.metadata.get(BACKEND, ""), next(iter(ours.values())))


class _Backoff:
    """A function of the exception and the result, as a retry policy."""

    def __init__(self, function: Callable[[BaseException, Any], Any], result: Any) -> None:
        self._function = function
        self._result = result

    def delay(self, attempt: int, error: BaseException) -> float | None:
        del attempt
        found = self._function(error, self._result)
        return found.total_seconds() if isinstance(found, timedelta) else found


class _DecidedInRun:
    """The policy of these handlers: what the run has noted at the exception, or at one that it caused."""

    def delay(self, attempt: int, error: BaseException) -> float | None:
        found: BaseException | None = error
        while found is not None:
            if hasattr(found, _DELAY):
                delay: float | None = getattr(found, _DELAY)
                return delay
            found = found.__cause__ or found.__context__
        return DEFAULT_RETRY.delay(attempt, error)
