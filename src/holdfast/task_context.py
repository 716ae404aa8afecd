"""What the contexts of asynchronous and of plain handlers have in common."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol
from uuid import UUID

from holdfast.serialization.text import storable
from holdfast.workflows.calls import CallSite
from holdfast.workflows.ends import Continued, Stopped
from holdfast.workflows.joins import plan_first, plan_map

if TYPE_CHECKING:
    from holdfast.engine.enqueue import NewTask

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
        return self._run_of().step(
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
        return self._run_of().map(task, join, timeout)

    def _first(
        self, tasks: tuple[NewTask, ...], name: str | None, timeout: Duration | None, on_cancel: OnCancel
    ) -> Any:
        return self._run_of().first(plan_first(tasks, on_cancel=on_cancel), timeout, name)

    def _transaction(
        self, name: str | None, function: Callable[..., Any] | None, args: tuple[Any, ...]
    ) -> Any:
        if name is None:
            transaction = self._open_transaction()
            transaction.site = CallSite("ctx.transaction")
            return transaction
        return self._run_of().transaction(name, function, args)


def _number(given: float) -> float | None:
    """As JSON can represent it: an invalid number would make the heartbeat of all tasks fail."""
    try:
        number = float(given)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number
