"""Who runs a task whose handler is not a function in this process."""

from typing import Protocol

from holdfast.handler import Handler
from holdfast.worker.job import Job


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
