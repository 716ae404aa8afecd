"""What an executor is, and which one runs a task."""

import contextlib
import sys
import time
from typing import Any, Literal, Protocol, TypeVar

from holdfast._worker.attempt import AttemptEnd, AttemptTask
from holdfast._worker.handler import Handler
from holdfast.isolation.run_end import RunBounds

SHUTDOWN_GRACE = 1.0
LEASE_MARGIN = 0.5
_OF_HANDLERS = ("python", "process", "command", "ray")


Phase = Literal["waiting", "running", "ending", "ended"]
"""Ending: the handler has returned and its outcome is being committed. It can no longer be stopped."""


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


Task_contra = TypeVar("Task_contra", contravariant=True)


class CannotStart(Exception):
    """This worker cannot begin the task, for a reason of its own: another worker may, or this one later."""

    def __init__(self, kind: str, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail


class Executor(Protocol[Task_contra]):
    """Runs all tasks of its name, for the life of the worker."""

    @property
    def needs_handler(self) -> bool:
        """Whether a task fails whose type the application does not register."""

    async def prepare(self) -> None:
        """Called before the worker claims."""

    async def run(self, job: Task_contra, handler: Handler | None, /) -> AttemptEnd | None:
        """Make one attempt, and return how it ended.

        None is returned if there is nothing to report: the end is recorded already, or the task was taken
        from this worker. Then `job.stop` says why, and this call was cancelled: nothing that it started may
        be left when it ends. Raises CannotStart if nothing of the attempt has begun.
        """

    async def close(self) -> None:
        """Called when nothing runs any more."""


def bind_executor(asked: str, declared: str) -> str | None:
    """The executor of a task that asks for one while its handler declares another; None refuses the task.

    The declaration binds: the caller may ask for more isolation than is declared, never for less. The
    executors that act with the rights of the database need an authority to enqueue, so a declaration alone
    does not choose them.
    """
    if asked == declared or asked not in _OF_HANDLERS:
        return asked
    if declared in ("process", "command", "ray"):
        return declared
    return asked if (asked, declared) == ("process", "python") else None


def reason_to_stop(job: ExecutorTask, bounds: RunBounds) -> tuple[str, float]:
    """Why a run has to end, and the seconds it has: another worker must not start the task before."""
    why = job.stop or "shutdown"
    lease_left = job.lease_ends - time.monotonic() - LEASE_MARGIN
    grace = {"shutdown": min(bounds.grace, SHUTDOWN_GRACE), "lost": min(bounds.grace, lease_left)}.get(
        why, bounds.grace
    )
    return why, max(0.0, grace)


def pass_on_output(stream_name: str, data: bytes) -> None:
    """Print what a run printed, as if it ran in the worker."""
    if data:
        stream = getattr(sys, stream_name)
        with contextlib.suppress(AttributeError):  # the application has replaced the stream
            stream.buffer.write(data)
            stream.buffer.flush()
