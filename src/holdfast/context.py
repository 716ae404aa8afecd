"""The context of a handler: what it can read and do besides its arguments."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NoReturn, Protocol
from uuid import UUID

from holdfast.serialization.text import storable
from holdfast.workflows.calls import CallSite
from holdfast.workflows.ends import Continued, Stopped
from holdfast.workflows.joins import plan_first, plan_map


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


class Cancelled:
    """True or false with parentheses and without: a method that is not called would always be true."""

    __slots__ = ("_held",)

    def __init__(self, held: Held) -> None:
        self._held = held

    def __bool__(self) -> bool:
        return self._held.stop is not None

    def __call__(self) -> bool:
        return self._held.stop is not None

    def __repr__(self) -> str:
        return str(self())


class Context:
    """The first argument of a handler whose first parameter is annotated with `Context`, or named `ctx`."""

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
    def log(self) -> Any:
        """A structured logger. Every line has the id, type and attempt of the task."""
        import structlog  # noqa: PLC0415 - a client does not load it

        return structlog.get_logger("holdfast.task").bind(
            task_id=self._held.task_id, type=self._held.type, attempt=self._held.attempt
        )

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report progress, for `handle.info()` and `holdfast show`. Cheap: only the latest report is sent."""
        self._held.progress = {
            "done": _number(done),
            "total": None if total is None else _number(total),
            "note": None if note is None else storable(str(note)[:500]),
        }
        self._tell()

    @property
    def cancelled(self) -> Cancelled:
        """Whether the task was cancelled, deleted or lost since the handler started."""
        return Cancelled(self._held)

    def check(self) -> None:
        """End the handler here if the task was cancelled, deleted or lost."""
        if self._held.stop is not None:
            raise Stopped(self._held.stop)
        if self._run is not None:
            self._run.calls.check()

    def step(
        self,
        function: Callable[..., Any],
        *args: Any,
        key: object = None,
        retries: int = 0,
        retry: Any = None,
        timeout: float | timedelta | None = None,
        lazy: bool = False,
        adapt: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Run a function once and remember its result: an attempt that resumes the run does not run it again.

        The name of the function identifies the step, with `key` if several calls are made at the same time.
        In an async handler, await it. With `lazy`, a crash may run it again. `adapt` turns an older result,
        as plain JSON, into a new one.
        """
        return self._steps().step(
            function, args, key=key, retries=retries, retry=retry, timeout=timeout, lazy=lazy, adapt=adapt
        )

    def sleep(self, duration: float | timedelta, name: str | None = None) -> Any:
        """Wait for a time, without holding a worker. In an async handler, await it."""
        return self._steps().sleep(duration, name)

    def sleep_until(self, moment: datetime, name: str | None = None) -> Any:
        """Wait until a time with a time zone; one that is past is no wait. In an async handler, await it."""
        return self._steps().sleep_until(moment, name)

    def now(self) -> datetime:
        """The time of the engine, which the clock of a test sets, in UTC. Not awaited.

        Estimated from the last answer of the database. It is not remembered: for a time that has to be the
        same when the run resumes, return it from a step.
        """
        return datetime.fromtimestamp(self._held.now(), UTC)

    def wait(self, name: str, kind: Any = Any, *, timeout: float | timedelta | None = None) -> Any:
        """Wait for a signal and return its payload, as `kind`. No worker is held meanwhile.

        Raises TimeoutError after the timeout, which is 30 days by default. In an async handler, await it.
        """
        return self._steps().wait(name, kind, timeout)

    def start(self, task: Any, *args: Any, **kwargs: Any) -> Any:
        """Start a task as a child of this run, once, and return its handle. The run does not wait for it.

        `task` is a function with `@app.task`, or what its `using` returns. In an async handler, await it.
        """
        return self._steps().start(task, args, kwargs)

    def map(
        self,
        task: Any,
        items: Iterable[Any],
        *,
        key: Callable[[Any], object] | None = None,
        return_exceptions: bool = False,
        timeout: float | timedelta | None = None,
        on_cancel: Literal["cancel", "leave"] = "cancel",
    ) -> Any:
        """Run a task for each item, as children, and return their results in the order of the items.

        No worker is held meanwhile. Raises one ExceptionGroup with all failures (TaskFailed, TaskCancelled),
        or returns them in place with `return_exceptions`. An item is the argument of the task, or made by
        `build`. With `key`, a resumed run finds the result of each item by its key, and not by its position.
        If the run is cancelled or fails for good, the children are cancelled, unless `on_cancel` is `leave`.
        In an async handler, await it.
        """
        join = plan_map(task, items, key, on_cancel=on_cancel, return_exceptions=return_exceptions)
        return self._steps().map(task, join, timeout)

    def first(
        self,
        *tasks: Any,
        name: str | None = None,
        timeout: float | timedelta | None = None,
        on_cancel: Literal["cancel", "leave"] = "cancel",
    ) -> Any:
        """Run several tasks as children, and return the result of the first that succeeds.

        Tasks are made by `build`. The others are then cancelled, unless `on_cancel` is `leave`. If none
        succeeds, raises one ExceptionGroup with all failures. In an async handler, await it.
        """
        return self._steps().first(plan_first(tasks, on_cancel=on_cancel), timeout, name)

    @property
    def batch(self) -> "OpenBatch":
        """The batch of this task: all that the tasks after this one wait for."""
        return OpenBatch(self._steps)

    def after(self, *kinds: Any) -> Any:
        """What the tasks before this one returned, in the order of `after=` or of the batch of `then=`.

        A task that did not succeed has its error in its place, TaskFailed or TaskCancelled. A kind is a type,
        or a task whose results are meant: none for plain JSON, one for all, or one for each. Read from the
        outcomes. Empty for a task that comes after no other. In an async handler, await it.
        """
        return self._steps().after(kinds)

    def callback(
        self,
        name: str,
        *,
        question: str | None = None,
        choices: Mapping[str, Any] | None = None,
        ttl: float | timedelta | None = None,
    ) -> Any:
        """The address of a page on which a person answers. A choice is a label and the payload of a signal.

        Send the address to that person, then `wait(name, …)`. Only the first answer counts. The link is valid
        for 30 days by default, and no longer than the run. In an async handler, await it.
        """
        return self._steps().callback(self.task_id, name, question=question, choices=choices, ttl=ttl)

    def transaction(
        self, name: str | None = None, function: Callable[..., Any] | None = None, *args: Any
    ) -> Any:
        """A connection to the database: `async with` in async handlers, `with` in others.

        With a name, it is a step: what is written through it and the memory of the step are one commit, so it
        happens exactly once. A run that resumes skips the block from the first use of the connection. With a
        function, that is called with the connection and the arguments, and its result is remembered.

        Without a name, the commit also records the outcome of the task: what the handler writes is committed
        when the handler has returned. If the lease was lost by then, or the handler raises, both are rolled
        back.
        """
        if name is None:
            transaction = self._open_transaction()
            transaction.site = CallSite("ctx.transaction")
            return transaction
        return self._steps().transaction(name, function, args)

    def since(self, name: str) -> bool:
        """Whether this run was enqueued after code with this line was first deployed. Not awaited.

        Guards a new step ahead of ones that older runs have finished. The answer never changes for a run. The
        name is text or a constant in the source: a worker that starts announces it.
        """
        answer: bool = self._steps().since(name)
        return answer

    def continue_as(self, **arguments: Any) -> NoReturn:
        """Begin the run again with these arguments and no memory, in one transaction: its next generation.

        It stays the same task, with its key, its signals and its deadline. Nothing after this line runs.
        """
        raise Continued(arguments)

    def _steps(self) -> Any:
        if self._run is None:
            self._run = self._open_run()
        return self._run


class OpenBatch:
    """The batch of a running task, which may grow as long as this task runs."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Callable[[], Any]) -> None:
        self._steps = steps

    def add(self, *tasks: Any, name: str | None = None) -> Any:
        """Enqueue tasks into the batch, once, and return their handles. What comes after waits for them, too.

        Tasks are made by `build`. This task does not wait for them. In an async handler, await it.
        """
        return self._steps().add_to_batch(tasks, name or "batch.add")


def _number(given: float) -> float | None:
    """As JSON can represent it: an invalid number would make the heartbeat of all tasks fail."""
    try:
        number = float(given)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number
