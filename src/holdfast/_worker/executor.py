"""What an executor is, and which one runs a task.

A package adds one with an entry point of the group `holdfast.executors`, which names a subclass of Executor.
A worker imports it when its application, its settings or a task needs it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from holdfast._telemetry.logs import Log
from holdfast._worker.handler import Handler
from holdfast._worker.report import AttemptEnd, AttemptTask
from holdfast._worker.subscription import WorkerApp
from holdfast._workflows.journal import Journal
from holdfast.options import IN_DATABASE
from holdfast.settings import Settings, variable_of

Phase = Literal["waiting", "running", "ending", "ended"]
"""Ending: the handler has returned and its outcome is being committed. It can no longer be stopped."""

T = TypeVar("T")


class ExecutorTask(AttemptTask, Protocol):
    """What an executor needs of the task that the worker holds."""

    token: int
    timeout: float | None
    lease_ends: float
    phase: Phase
    outside: bool
    trouble: str | None

    def limit(self, *declared: float | None) -> float | None:
        """The seconds that the attempt may take, within the deadline of the task."""

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of every log line about it."""


class CannotStart(Exception):
    """This worker cannot begin the task, for a reason of its own: another worker may, or this one later."""

    def __init__(self, kind: str, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail


@dataclass(frozen=True)
class ExecutorWorker:
    """The worker, as its executors use it."""

    app: WorkerApp
    url: str
    worker_id: str
    settings: Settings
    log: Log
    write: Callable[[Any, AttemptEnd], str]
    """Formats the report about an attempt, for an executor that commits it itself."""
    settled: Callable[[Any, str], object]
    """Call it with the task and the verdict of the database about such a report."""
    record_killed: Callable[[Any, str], None]
    """Call it with the task and the error of a run that was killed because the worker had to stop it."""
    send_progress: Callable[[], None]
    open_journal: Callable[[Any], Journal]
    max_result_bytes: Callable[[], int]
    _shared: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def share(self, build: Callable[["ExecutorWorker"], T]) -> T:
        """What executors of this worker use together: built for the first that asks."""
        if build not in self._shared:
            self._shared[build] = build(self)
        found: T = self._shared[build]
        return found


class Executor:
    """Runs all tasks of its name, for the life of the worker."""

    needs_handler: ClassVar[bool] = True
    """Whether a task fails whose type the application does not register."""

    def __init__(self, worker: ExecutorWorker) -> None:
        """Raise ConfigurationError if it cannot be used. Connect to nothing yet."""

    @classmethod
    def check(
        cls, settings: Settings, app: WorkerApp | None = None, handlers: Sequence[Handler] = ()
    ) -> None:
        """Raise ConfigurationError if this machine could not run tasks of these handlers.

        Called before a worker starts, and without an application before several worker processes do.
        """

    async def prepare(self) -> None:
        """Called before the worker claims, if its application or its settings need this executor."""

    async def run(self, job: ExecutorTask, handler: Handler | None, /) -> AttemptEnd | None:
        """Make one attempt, and return how it ended.

        None is returned if there is nothing to report: the end is recorded already, or the task was taken
        from this worker. Then `job.stop` says why, and this call was cancelled: nothing that it started may
        be left when it ends. Raises CannotStart if nothing of the attempt has begun.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Called when nothing runs any more."""


def unusable(setting: str, value: object) -> str:
    """How the refusal of a setting begins."""
    return f"{variable_of(setting)}={str(value)!r} cannot be used"


def bind_executor(asked: str, declared: str) -> str | None:
    """The executor of a task that asks for one while its handler declares another; None refuses the task.

    The declaration binds: the caller may ask for more isolation than is declared, never for less. The
    executors that act with the rights of the database need an authority to enqueue, so a declaration alone
    does not choose them.
    """
    if asked == declared or asked in IN_DATABASE:
        return asked
    if declared != "python" and declared not in IN_DATABASE:
        return declared
    return asked if (asked, declared) == ("process", "python") else None
