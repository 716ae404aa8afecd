"""Batches: tasks of one type that a handler takes together, from gathering them to one report for each."""

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from holdfast._serialization.failure import brief
from holdfast._telemetry import tracing
from holdfast._telemetry.current_job import current_job
from holdfast._worker.attempt import Attempt
from holdfast._worker.attempts import Attempts
from holdfast._worker.executor import CannotStart
from holdfast._worker.handler import BatchHandler, Handler
from holdfast._worker.jobs import HeldJobs, Job, Stop
from holdfast._worker.report import DeadlinePassed, NotDecoded, NotEncoded, Reporter
from holdfast._worker.watchdog import WatchedHandler
from holdfast._workflows.calls import Calls, check_all_awaited
from holdfast._workflows.ends import Stopped
from holdfast.errors import PayloadError


class RunningBatch:
    """The tasks of one call of a handler. Each of them has it as `running`."""

    def __init__(self, jobs: Sequence[Job], items: Sequence[Any]) -> None:
        self.jobs = list(jobs)
        self.items = list(items)
        self.ended = False
        self.calls: Calls | None = None
        self.task: asyncio.Task[None] | None = None
        self.interrupt: Callable[[type[BaseException]], object] | None = None
        """Interrupts the thread of the handler, if it runs in one."""

    @property
    def log_fields(self) -> dict[str, Any]:
        return {"type": self.jobs[0].type, "tasks": len(self.jobs)}

    def stopped(self, why: Stop) -> None:
        """One of the tasks was stopped. The handler goes on for the others; without others, it is ended."""
        if any(job.stop is None for job in self.jobs):
            return
        if self.task is not None:
            self.task.cancel()
        elif self.interrupt is not None and why == "lost":
            self.interrupt(Stopped)


class BatchAttempt(Attempt[list[str | None]]):
    """Calls a handler once for several tasks, and reports about each of them."""

    def __init__(self, batch: RunningBatch, handler: Handler, attempts: Attempts) -> None:
        super().__init__(batch.jobs[0], handler, attempts.reporter, attempts.log)
        self._batch = batch
        self._reporter = attempts.reporter

    def bind(self) -> Callable[[], Any]:
        current_job.set(self._batch)
        return partial(_batch_of(self.handler).function, self._batch.items)

    def limit(self) -> float | None:
        """The shortest time limit of its tasks."""
        limits = (job.limit(self.handler.timeout) for job in self._batch.jobs)
        return min((limit for limit in limits if limit), default=None)

    def begins(self, watched: WatchedHandler) -> None:
        self._batch.interrupt = watched.interrupt

    def returned(self, value: Any) -> list[str | None]:
        """One report for each task; None for a task that was taken from this worker."""
        batch = self._batch
        check_all_awaited(batch.calls)
        values = _batch_of(self.handler).results_of(self.handler.type, value, len(batch.jobs))
        return [self._report(job, value) for job, value in zip(batch.jobs, values, strict=True)]

    def raised(self, error: BaseException) -> list[str | None]:
        batch = self._batch
        if any(job.stop is None for job in batch.jobs):
            self._log.warning("attempt_failed", **batch.log_fields, error=brief(error))
        return [self._report_error(job, error) for job in batch.jobs]

    def _report(self, job: Job, value: Any) -> str | None:
        if isinstance(value, BaseException):
            return self._report_error(job, value)
        try:
            return self._reporter.returned(job, self.handler, value)
        except NotEncoded as error:
            return self._report_error(job, error)

    def _report_error(self, job: Job, error: BaseException) -> str | None:
        if job.stop is not None:
            return None
        try:
            return self._reporter.raised(job, self.handler, error)
        except Exception as problem:  # noqa: BLE001 - a retry policy of the application may raise anything
            return self._reporter.broken(job, problem)


def decode_batch(
    jobs: Sequence[Job], handler: Handler, reporter: Reporter
) -> tuple[RunningBatch, list[tuple[Job, str]]]:
    """The batch of the tasks that can run, and the reports about the others."""
    fitting, items, refused = [], [], []
    for job in jobs:
        if job.is_past_deadline:
            refused.append((job, reporter.raised(job, handler, DeadlinePassed(job.ends_at))))
            continue
        try:
            [item] = handler.arguments.decode(job.payload).values()
        except PayloadError as error:
            refused.append((job, reporter.raised(job, handler, NotDecoded(str(error)))))
        else:
            fitting.append(job)
            items.append(item)
    return RunningBatch(fitting, items), refused


def _batch_of(handler: Handler) -> BatchHandler:
    assert handler.batch is not None  # noqa: S101 - else its tasks would run one by one
    return handler.batch


class BatchGatherer:
    """Gathers the tasks of each type until a batch is full or its first task has waited long enough."""

    def __init__(
        self,
        jobs: HeldJobs,
        attempts: Attempts,
        *,
        end: Callable[[Job, str | None], None],
        not_started: Callable[[Job, CannotStart], None],
        refuse: Callable[[Job, str], None],
        context: contextvars.Context,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`end` takes the report about a task that has run, `refuse` about one that cannot."""
        self._jobs = jobs
        self._attempts = attempts
        self._end = end
        self._not_started = not_started
        self._refuse = refuse
        self._context = context
        self._loop = loop
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, job: Job, handler: Handler) -> None:
        if is_alone(job):
            self._launch([job], handler)
            return
        gathered, together = self._jobs.slots.gather(job), _batch_of(handler)
        if gathered >= together.size:
            self._launch_gathered(handler)
        elif handler.type not in self._timers:
            launch = partial(self._launch_gathered, handler)
            self._timers[handler.type] = self._loop.call_later(together.wait, launch)

    def close(self) -> None:
        """Start nothing any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _launch_gathered(self, handler: Handler) -> None:
        timer = self._timers.pop(handler.type, None)
        if timer is not None:
            timer.cancel()
        jobs = self._jobs.slots.take_gathered(handler.type)
        if jobs:
            self._launch(jobs, handler)

    def _launch(self, jobs: list[Job], handler: Handler) -> None:
        batch, refused = decode_batch(self._jobs.still_held(jobs), handler, self._attempts.reporter)
        for job, report in refused:
            self._refuse(job, report)
        if not batch.jobs:
            return
        self._jobs.slots.begin_batch(batch.jobs)
        for job in batch.jobs:
            job.running = batch
        task = self._loop.create_task(self._run(batch, handler), context=self._context.copy())
        # A thread is not stopped by cancelling the coroutine that waits for it.
        batch.task = task if handler.is_async else None

    async def _run(self, batch: RunningBatch, handler: Handler) -> None:
        try:
            with tracing.attempt(batch.jobs[0], handler.queue):
                reports = await self._attempts.run(BatchAttempt(batch, handler, self._attempts))
        except CannotStart as why:
            self._jobs.slots.end_batch(batch)
            for job in batch.jobs:
                self._not_started(job, why)
            return
        self._jobs.slots.end_batch(batch)
        for job, report in zip(batch.jobs, reports or (), strict=True):
            self._end(job, report)


def is_alone(job: Job) -> bool:
    """The last attempt runs alone: a task that breaks every batch must not take the others with it."""
    return job.attempt >= job.max_attempts > 1
