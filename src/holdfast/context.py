"""The contexts of handlers: what they can read and do besides their arguments.

`Context` is awaited and `SyncContext` is not; both tell type checkers the results of steps, waits and tasks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    TypeVarTuple,
    overload,
)
from uuid import UUID

from holdfast._serialization.text import storable
from holdfast._telemetry.logs import Log
from holdfast._workflows.calls import CallSite
from holdfast._workflows.ends import Continued, Stopped
from holdfast._workflows.joins import plan_first, plan_map

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    import psycopg

    from holdfast._engine.enqueue import NewTask
    from holdfast.handle import Handle
    from holdfast.retry import RetryPolicy
    from holdfast.task import BoundTask

P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")
Handles = TypeVar("Handles")
Duration = float | timedelta
OnCancel = Literal["cancel", "leave"]


class Held(Protocol):
    """The task of a context."""

    task_id: str
    type: str
    attempt: int
    max_attempts: int
    metadata: str | None
    progress: dict[str, Any] | None

    @property
    def stop(self) -> str | None:
        """Why the handler should end, or None."""

    def now(self) -> float:
        """The time of the database, estimated from the answer to the claim."""


class TaskContext:
    """What contexts of asynchronous and of plain handlers have in common."""

    __slots__ = ("_held", "_open_run", "_open_transaction", "_run", "_tell")

    def __init__(
        self,
        held: Held,
        tell: Callable[[], None],
        open_transaction: Callable[[], Any],
        open_run: Callable[[], Any],
    ) -> None:
        self._held = held
        self._tell = tell
        self._open_transaction = open_transaction
        self._open_run = open_run
        self._run: Any = None

    @property
    def task_id(self) -> UUID:
        return UUID(self._held.task_id)

    @property
    def type(self) -> str:
        return self._held.type

    @property
    def attempt(self) -> int:
        """The number of this attempt; the first is 1."""
        return self._held.attempt

    @property
    def max_attempts(self) -> int:
        return self._held.max_attempts

    @property
    def metadata(self) -> dict[str, Any]:
        return {} if self._held.metadata is None else dict(json.loads(self._held.metadata))

    @property
    def log(self) -> Log:
        """A structured logger. Every line has the id, type and attempt of the task."""
        return Log(task_id=self._held.task_id, type=self._held.type, attempt=self._held.attempt)

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report progress, for `handle.info()` and `holdfast show`. Cheap: only the latest report is sent."""
        self._held.progress = {
            "done": _number(done),
            "total": None if total is None else _number(total),
            "note": None if note is None else storable(str(note)[:500]),
        }
        self._tell()

    @property
    def should_stop(self) -> bool:
        """Whether the task was cancelled, deleted or lost since the handler started."""
        return self._held.stop is not None

    def raise_if_stopped(self) -> None:
        """End the handler here if the task was cancelled, deleted or lost."""
        if self._held.stop is not None:
            raise Stopped(self._held.stop)
        if self._run is not None:
            self._run.calls.check()

    def now(self) -> datetime:
        """The time of the engine, which the clock of a test sets, in UTC. Not awaited.

        Estimated from the last answer of the database. It is not remembered: for a time that has to be the
        same when the run resumes, return it from a step.
        """
        return datetime.fromtimestamp(self._held.now(), UTC)

    def since(self, name: str) -> bool:
        """Whether this run was enqueued after code with this line was first deployed. Not awaited.

        Guards a new step ahead of ones that older runs have finished. The answer never changes for a run. The
        name is text or a constant in the source: a worker that starts announces it.
        """
        answer: bool = self._run_of().since(name)
        return answer

    def continue_as(self, **arguments: Any) -> NoReturn:
        """Begin the run again with these arguments and no memory, in one transaction: its next generation.

        It stays the same task, with its key, its signals and its deadline. Nothing after this line runs.
        """
        raise Continued(arguments)

    def _run_of(self) -> Any:
        if self._run is None:
            self._run = self._open_run()
        return self._run

    def _step(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        key: object = None,
        retries: int = 0,
        retry: Any = None,
        timeout: Duration | None = None,
        lazy: bool = False,
        adapt: Callable[[Any], Any] | None = None,
    ) -> Any:
        return self._run_of().steps.step(
            function, args, key=key, retries=retries, retry=retry, timeout=timeout, lazy=lazy, adapt=adapt
        )

    def _map(
        self,
        task: Any,
        items: Iterable[Any],
        *,
        key: Callable[[Any], object] | None = None,
        return_exceptions: bool = False,
        timeout: Duration | None = None,
        on_cancel: OnCancel = "cancel",
    ) -> Any:
        join = plan_map(task, items, key, on_cancel=on_cancel, return_exceptions=return_exceptions)
        return self._run_of().children.map(task, join, timeout)

    def _first(
        self, tasks: tuple[NewTask, ...], name: str | None, timeout: Duration | None, on_cancel: OnCancel
    ) -> Any:
        return self._run_of().children.first(plan_first(tasks, on_cancel=on_cancel), timeout, name)

    def _transaction(self) -> Any:
        transaction = self._open_transaction()
        transaction.site = CallSite("ctx.transaction")
        return transaction


class Context(TaskContext):
    """The first argument of an async handler whose first parameter is annotated with it, or named `ctx`.

    A method that waits or records something has to be awaited: an attempt that forgets one fails.
    """

    __slots__ = ()

    @overload
    def step(
        self,
        function: Callable[[*Ts], Coroutine[Any, Any, R]],
        *args: *Ts,
        key: object = None,
        retries: int = 0,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        lazy: bool = False,
        adapt: Callable[[Any], R] | None = None,
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(
        self,
        function: Callable[[*Ts], R],
        *args: *Ts,
        key: object = None,
        retries: int = 0,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        lazy: bool = False,
        adapt: Callable[[Any], R] | None = None,
    ) -> Coroutine[Any, Any, R]: ...
    def step(  # type: ignore[misc] # mypy does not see that *args take any *Ts
        self, function: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        """Run a function once and remember its result: an attempt that resumes the run does not run it again.

        The name of the function identifies the step, with `key` if several calls are made at the same time.
        With `lazy`, a crash may run it again. `adapt` turns an older result, as plain JSON, into a new one.
        """
        return self._step(function, args, **options)

    def sleep(self, duration: Duration, name: str | None = None) -> Coroutine[Any, Any, None]:
        """Wait for a time, without holding a worker."""
        return self._run_of().waits.sleep(duration, name)

    def sleep_until(self, moment: datetime, name: str | None = None) -> Coroutine[Any, Any, None]:
        """Wait until a time with a time zone; one that is past is no wait."""
        return self._run_of().waits.sleep_until(moment, name)

    @overload
    def wait(
        self, name: str, kind: type[R], *, timeout: Duration | None = None
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def wait(
        self, name: str, kind: Any = Any, *, timeout: Duration | None = None
    ) -> Coroutine[Any, Any, Any]: ...
    def wait(self, name: str, kind: Any = Any, *, timeout: Duration | None = None) -> Any:
        """Wait for a signal and return its payload, as `kind`. No worker is held meanwhile.

        Raises TimeoutError after the timeout, which is 30 days by default.
        """
        return self._run_of().waits.wait(name, kind, timeout)

    def start(
        self, task: BoundTask[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Handle[R]]:
        """Start a task as a child of this run, once, and return its handle. The run does not wait for it.

        `task` is a function with `@app.task`, or what its `using` returns.
        """
        return self._run_of().children.start(task, args, kwargs)

    @overload
    def map(
        self,
        task: BoundTask[..., R],
        items: Iterable[Any],
        *,
        key: Callable[[Any], object] | None = None,
        return_exceptions: Literal[False] = False,
        timeout: Duration | None = None,
        on_cancel: OnCancel = "cancel",
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def map(
        self,
        task: BoundTask[..., R],
        items: Iterable[Any],
        *,
        key: Callable[[Any], object] | None = None,
        return_exceptions: bool,
        timeout: Duration | None = None,
        on_cancel: OnCancel = "cancel",
    ) -> Coroutine[Any, Any, list[R | Exception]]: ...
    def map(self, task: Any, items: Iterable[Any], **options: Any) -> Any:
        """Run a task for each item, as children, and return their results in the order of the items.

        No worker is held meanwhile. Raises one ExceptionGroup with all failures (TaskFailed, TaskCancelled),
        or returns them in place with `return_exceptions`. An item is the argument of the task, or made by
        `build`. With `key`, a resumed run finds the result of each item by its key, and not by its position.
        If the run is cancelled or fails for good, the children are cancelled, unless `on_cancel` is `leave`.
        """
        return self._map(task, items, **options)

    def first(
        self,
        *tasks: NewTask,
        name: str | None = None,
        timeout: Duration | None = None,
        on_cancel: OnCancel = "cancel",
    ) -> Coroutine[Any, Any, Any]:
        """Run several tasks as children, and return the result of the first that succeeds.

        Tasks are made by `build`. The others are then cancelled, unless `on_cancel` is `leave`. If none
        succeeds, raises one ExceptionGroup with all failures.
        """
        return self._first(tasks, name, timeout, on_cancel)

    @property
    def batch(self) -> OpenBatch[Coroutine[Any, Any, list[Handle[Any]]]]:
        """The batch of this task: all that the tasks after this one wait for."""
        return OpenBatch(self._run_of)

    def after(self, *kinds: Any) -> Coroutine[Any, Any, list[Any]]:
        """What the tasks before this one returned, in the order of `after=` or of the batch of `then=`.

        A task that did not succeed has its error in its place, TaskFailed or TaskCancelled. Pass result
        types, or tasks: none for plain JSON, one for all, or one for each. Empty for a task that comes after
        no other.
        """
        return self._run_of().children.after(kinds)

    def callback(
        self,
        name: str,
        *,
        question: str | None = None,
        choices: Mapping[str, Any] | None = None,
        ttl: Duration | None = None,
    ) -> Coroutine[Any, Any, str]:
        """The address of a page on which a person answers. A choice is a label and the payload of a signal.

        Send the address to that person, then `wait(name, …)`. Only the first answer counts. The link is valid
        for 30 days by default, and no longer than the run.
        """
        return self._run_of().callback(self.task_id, name, question=question, choices=choices, ttl=ttl)

    def transaction(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """A connection whose commit also records the outcome: `async with ctx.transaction() as db`.

        What the handler writes is committed when the handler has returned. If the lease was lost by then, or
        the handler raises, both are rolled back.
        """
        opened: AbstractAsyncContextManager[psycopg.AsyncConnection[Any]] = self._transaction()
        return opened

    def step_transaction(self, name: str) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """A block that happens once: `async with ctx.step_transaction("pay") as db`.

        What is written through the connection and the memory of the step are one commit. A run that resumes
        skips the block from the first use of the connection, so use it in the first line.
        """
        block: AbstractAsyncContextManager[psycopg.AsyncConnection[Any]] = (
            self._run_of().steps.step_transaction(name)
        )
        return block

    def step_in_transaction(
        self,
        function: Callable[[psycopg.AsyncConnection[Any], *Ts], Coroutine[Any, Any, R]],
        *args: *Ts,
        key: object = None,
    ) -> Coroutine[Any, Any, R]:
        """A step that is called with a connection before its arguments, and whose result is remembered.

        What it writes through the connection and the memory of the step are one commit.
        """
        called: Coroutine[Any, Any, R] = self._run_of().steps.step_in_transaction(function, args, key)
        return called


class SyncContext(TaskContext):
    """The first argument of a plain handler whose first parameter is annotated with it, or named `ctx`.

    Its methods are those of `Context`, and are not awaited.
    """

    __slots__ = ()

    def step(
        self,
        function: Callable[[*Ts], R],
        *args: *Ts,
        key: object = None,
        retries: int = 0,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        lazy: bool = False,
        adapt: Callable[[Any], R] | None = None,
    ) -> R:
        """Run a function once and remember its result: see `Context.step`."""
        return self._step(
            function, args, key=key, retries=retries, retry=retry, timeout=timeout, lazy=lazy, adapt=adapt
        )

    def sleep(self, duration: Duration, name: str | None = None) -> None:
        """Wait for a time, without holding a worker."""
        self._run_of().waits.sleep(duration, name)

    def sleep_until(self, moment: datetime, name: str | None = None) -> None:
        """Wait until a time with a time zone; one that is past is no wait."""
        self._run_of().waits.sleep_until(moment, name)

    @overload
    def wait(self, name: str, kind: type[R], *, timeout: Duration | None = None) -> R: ...
    @overload
    def wait(self, name: str, kind: Any = Any, *, timeout: Duration | None = None) -> Any: ...
    def wait(self, name: str, kind: Any = Any, *, timeout: Duration | None = None) -> Any:
        """Wait for a signal and return its payload, as `kind`: see `Context.wait`."""
        return self._run_of().waits.wait(name, kind, timeout)

    def start(self, task: BoundTask[P, R], *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Start a task as a child of this run, once, and return its handle: see `Context.start`."""
        return self._run_of().children.start(task, args, kwargs)

    @overload
    def map(
        self,
        task: BoundTask[..., R],
        items: Iterable[Any],
        *,
        key: Callable[[Any], object] | None = None,
        return_exceptions: Literal[False] = False,
        timeout: Duration | None = None,
        on_cancel: OnCancel = "cancel",
    ) -> list[R]: ...
    @overload
    def map(
        self,
        task: BoundTask[..., R],
        items: Iterable[Any],
        *,
        key: Callable[[Any], object] | None = None,
        return_exceptions: bool,
        timeout: Duration | None = None,
        on_cancel: OnCancel = "cancel",
    ) -> list[R | Exception]: ...
    def map(self, task: Any, items: Iterable[Any], **options: Any) -> Any:
        """Run a task for each item, as children, and return their results in order: see `Context.map`."""
        return self._map(task, items, **options)

    def first(
        self,
        *tasks: NewTask,
        name: str | None = None,
        timeout: Duration | None = None,
        on_cancel: OnCancel = "cancel",
    ) -> Any:
        """Run several tasks as children, and return the result of the first that succeeds."""
        return self._first(tasks, name, timeout, on_cancel)

    @property
    def batch(self) -> OpenBatch[list[Handle[Any]]]:
        """The batch of this task: all that the tasks after this one wait for."""
        return OpenBatch(self._run_of)

    def after(self, *kinds: Any) -> list[Any]:
        """What the tasks before this one returned: see `Context.after`."""
        return self._run_of().children.after(kinds)

    def callback(
        self,
        name: str,
        *,
        question: str | None = None,
        choices: Mapping[str, Any] | None = None,
        ttl: Duration | None = None,
    ) -> str:
        """The address of a page on which a person answers: see `Context.callback`."""
        return self._run_of().callback(self.task_id, name, question=question, choices=choices, ttl=ttl)

    def transaction(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """A connection whose commit also records the outcome: see `Context.transaction`."""
        opened: AbstractContextManager[psycopg.Connection[Any]] = self._transaction()
        return opened

    def step_transaction(self, name: str) -> AbstractContextManager[psycopg.Connection[Any]]:
        """A block that happens once: see `Context.step_transaction`."""
        block: AbstractContextManager[psycopg.Connection[Any]] = self._run_of().steps.step_transaction(name)
        return block

    def step_in_transaction(
        self, function: Callable[[psycopg.Connection[Any], *Ts], R], *args: *Ts, key: object = None
    ) -> R:
        """A step that is called with a connection: see `Context.step_in_transaction`."""
        value: R = self._run_of().steps.step_in_transaction(function, args, key)
        return value


class OpenBatch(Generic[Handles]):
    """The batch of a running task, which may grow as long as this task runs."""

    __slots__ = ("_run_of",)

    def __init__(self, run_of: Callable[[], Any]) -> None:
        self._run_of = run_of

    def add(self, *tasks: NewTask, name: str | None = None) -> Handles:
        """Enqueue tasks into the batch, once, and return their handles. What comes after waits for them, too.

        Tasks are made by `build`. This task does not wait for them. In an async handler, await it.
        """
        return self._run_of().children.add_to_batch(tasks, name or "batch.add")


def _number(given: float) -> float | None:
    """As JSON can represent it: an invalid number would make the heartbeat of all tasks fail."""
    try:
        number = float(given)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number
