"""Who runs a task whose handler is not a function in this process."""

from typing import Protocol

from holdfast.handler import Handler
from holdfast.worker.job import Job

_OF_HANDLERS = ("python", "process", "command")


class Executor(Protocol):
    """One for all tasks of its name, for the life of the worker."""

    @property
    def needs_handler(self) -> bool:
        """Whether a task of a type that the application does not register has failed before it began."""

    async def prepare(self) -> None:
        """The worker begins to claim."""

    async def run(self, job: Job, handler: Handler | None) -> str | None:
        """One attempt, to its report for `finish`.

        None is answered if there is nothing to report: the end is recorded already, or the task was taken
        from us. Then `job.stop` says why, and this call was cancelled: what it started has to be gone when it
        ends.
        """

    async def close(self) -> None:
        """The worker ends; nothing runs any more."""


def bind_executor(asked: str, declared: str) -> str | None:
    """What runs a task that asks for one executor and whose handler declares another; None refuses it.

    The declaration binds: whoever enqueues may ask for more isolation than is declared, never for less. The
    executors that act with the rights of the database need an authority to enqueue, so a declaration alone
    does not choose them.
    """
    if asked == declared or asked not in _OF_HANDLERS:
        return asked
    if declared in ("process", "command"):
        return declared
    return asked if (asked, declared) == ("process", "python") else None
