"""Tasks that this worker cannot start: they are left to other workers, or fail in the end."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import leases
from holdfast._telemetry.logs import Log
from holdfast._worker.executor import CannotStart
from holdfast._worker.jobs import Job
from holdfast._worker.releasing import BackgroundSends
from holdfast._worker.report import AttemptEnd

KIND = "no_handler_registered"
MAX_AT_ONCE = 1000


class UnhandledTasks(BackgroundSends):
    """Until a worker can start the task, it waits and uses up no attempt.

    It fails if none could for as long as `grace` allows: its type is misspelt, its handler was removed, or no
    worker has its executor. A worker without an application does not know which types are misspelt, and fails
    no task for want of a handler.
    """

    def __init__(
        self,
        connection: WorkerConnection,
        worker_id: str,
        *,
        grace: timedelta,
        knows_types: bool,
        end: Callable[[Job, AttemptEnd], None],
        log: Log,
    ) -> None:
        super().__init__()
        self._connection = connection
        self._worker_id = worker_id
        self._grace = grace
        self._knows_types = knows_types
        self._end = end
        self._log = log
        self._found: list[tuple[Job, CannotStart | None]] = []

    def add(self, job: Job, why: CannotStart | None = None) -> None:
        """Without a reason, its handler is missing."""
        job.phase = "ended"
        self._found.append((job, why))
        if len(self._found) == 1:
            self._begin(self._decide())

    async def _decide(self) -> None:
        while found := self._found[:MAX_AT_ONCE]:
            try:
                ends = await self._ends_of(found)
            except Exception as error:  # noqa: BLE001 - jobs about which nobody decides would be held for ever
                self._log.warning("handlers_not_found", tasks=len(found), error=str(error))
                ends = [AttemptEnd.postpone(1.0, KIND, "its worker could not ask who has its handler")] * len(
                    found
                )
            del self._found[: len(found)]
            for (job, _), end in zip(found, ends, strict=True):
                self._end(job, end)

    async def _ends_of(self, found: list[tuple[Job, CannotStart | None]]) -> list[AttemptEnd]:
        held = [leases.held_json(job.task_id, job.token) for job, _ in found]
        answers = await self._connection.run(partial(leases.handled_elsewhere, self._worker_id, held))
        return [
            self._end_of(job, answer) if why is None else self._not_started(why, answer)
            for (job, why), answer in zip(found, answers, strict=True)
        ]

    def _not_started(self, why: CannotStart, answer: leases.Handled) -> AttemptEnd:
        if answer.waiting >= self._grace:
            return AttemptEnd.failed(why.kind, why.message, **why.detail)
        return AttemptEnd.postpone(_soon(answer), why.kind, why.message)

    def _end_of(self, job: Job, answer: leases.Handled) -> AttemptEnd:
        if answer.handled:
            self._log.info("no_handler_registered", **job.log_fields, handled_elsewhere=True)
            message = f"it has no handler for {job.type}, and another live worker has one"
            return AttemptEnd.postpone(_soon(answer), KIND, message)
        self._log.error("no_handler_registered", **job.log_fields)
        if self._knows_types and answer.waiting >= self._grace:
            return no_handler(job)
        message = (
            f"it has no handler for {job.type}, and no other live worker has one. "
            "Start a worker with the application that declares it."
            if self._knows_types
            else f"it was started without an application, and {job.type} needs a Python handler. "
            "Start a worker with the application that declares it."
        )
        # A task that waits for days is not claimed every minute.
        seconds = min(max(15.0, answer.waiting.total_seconds() / 4), 600.0)
        return AttemptEnd.postpone(seconds, KIND, message)


def _soon(answer: leases.Handled) -> float:
    """Another worker may take it, or this one later."""
    return min(max(1.0, answer.waiting.total_seconds() / 4), 60.0)


def no_handler(job: Job) -> AttemptEnd:
    return AttemptEnd.failed(KIND, f"{KIND}: this worker has no handler for {job.type}")
