"""Running: each task in an asyncio task or a thread of its own, so that a handler ends only itself."""

import asyncio
import contextlib
import contextvars
import functools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from holdfast._telemetry import tracing
from holdfast._telemetry.current_job import current_job
from holdfast._telemetry.logs import Log, name_worker
from holdfast._worker.attempts import Attempts, JobAttempt
from holdfast._worker.batches import BatchGatherer, RunningBatch
from holdfast._worker.executor import CannotStart, bind_executor
from holdfast._worker.executors import Executors
from holdfast._worker.handler import Handler
from holdfast._worker.jobs import LATE, HeldJobs, Job
from holdfast._worker.report import AttemptEnd, DeadlinePassed, HandlerTimeout, Reporter
from holdfast._worker.unhandled import UnhandledTasks

STARTS_AT_ONCE = 100
"""Handlers that are started before the event loop looks at its connections again. Without a limit, a thousand
handlers would run while the answers to a claim and a finish wait to be read."""
AddReport = Callable[[Job, str], None]
"""Passes a report on to be sent to the database."""


class Runner:
    """Starts what was claimed as soon as there is room, and passes on the report of every attempt."""

    def __init__(
        self,
        jobs: HeldJobs,
        *,
        worker_id: str,
        handlers: Mapping[str, Handler],
        executors: Executors,
        attempts: Attempts,
        reporter: Reporter,
        add_report: AddReport,
        usual_lease: timedelta,
        renew: Callable[[Sequence[Job]], object],
        open_unhandled: Callable[[Callable[[Job, AttemptEnd], None]], UnhandledTasks],
        log: Log,
    ) -> None:
        self._jobs = jobs
        self._handlers = handlers
        self._executors = executors
        self._attempts = attempts
        self._reporter = reporter
        self._add_report = add_report
        self._usual_lease = usual_lease.total_seconds() * 0.9
        self._renew = renew
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._context.run(name_worker, worker_id)
        self.unhandled = open_unhandled(self._end_unstarted)
        self._closing = False
        self._starts_left = STARTS_AT_ONCE
        self._batches = BatchGatherer(
            jobs,
            attempts,
            end=self._end,
            not_started=self._not_started,
            refuse=self._refuse,
            context=self._context,
            loop=self._loop,
        )

    async def prepare(self) -> None:
        await self._executors.prepare()

    async def close(self) -> None:
        self._attempts.close()
        await self._executors.close()

    def take(self, jobs: Sequence[Job]) -> None:
        """Hold what was claimed, and start as much of it as the concurrency allows."""
        self._jobs.add(jobs)
        if min(job.lease_seconds for job in jobs) < self._usual_lease:
            self._renew(jobs)  # one of them has a shorter lease of its own
        self._start_waiting()

    def stop_starting(self) -> list[Job]:
        """Start nothing any more. Returns what was claimed and not started."""
        self._closing = True
        self._batches.close()
        return self._jobs.slots.take_waiting()

    def abandon(self, job: Job) -> None:
        """Report a thread that blocks in C past all limits. When it ends, its result is ignored."""
        if job not in self._jobs.slots.running:
            return
        self._log.error("handler_stuck", **job.log_fields, seconds=round(job.seconds_running))
        error = HandlerTimeout(
            "the attempt is past its limit, and its thread does not react and may still run"
        )
        jobs = [job]
        if isinstance(job.running, RunningBatch):
            jobs = job.running.jobs
            self._jobs.slots.end_batch(job.running)
        for one in jobs:
            self._end(one, self._reporter.raised(one, self._handlers[one.type], error))

    def _start_waiting(self) -> None:
        started = 0
        while (
            not self._closing and self._starts_left and (job := self._jobs.slots.next_to_start()) is not None
        ):
            self._start(job)
            started += 1
            self._starts_left -= 1
            if not self._starts_left:
                self._loop.call_soon(self._start_more)
        self._jobs.count_started(started)

    def _start_more(self) -> None:
        self._starts_left = STARTS_AT_ONCE
        self._start_waiting()

    def _start(self, job: Job) -> None:
        handler = self._handlers.get(job.type)
        if handler is not None and job.executor != handler.executor and not self._bind(job, handler):
            return
        if job.is_past_deadline:
            self._end_unstarted(job, AttemptEnd.failed("deadline_passed", str(DeadlinePassed(job.ends_at))))
            return
        if (handler is None or job.executor != "python") and self._cannot_run(job):
            return
        if handler is not None and handler.batch is not None and job.executor == "python":
            self._batches.add(job, handler)
            return
        if not job.may_begin:  # the answer of the claim came late, or this process was suspended meanwhile
            self._jobs.give_back([job], why=LATE)
            return
        self._jobs.slots.begin(job, time.monotonic())
        self._launch(job, handler)

    def _bind(self, job: Job, handler: Handler) -> bool:
        """Apply the executor that the handler declares. False if the task asks for less isolation."""
        bound = bind_executor(job.executor, handler.executor)
        if bound is None:
            self._log.error(
                "executor_refused", **job.log_fields, asked=job.executor, declared=handler.executor
            )
            self._end_unstarted(job, executor_refused(job, handler))
            return False
        job.executor = bound
        return True

    def _cannot_run(self, job: Job) -> bool:
        """Report a task that this worker has no handler or no executor for."""
        try:
            executor = None if job.executor == "python" else self._executors.find(job.executor)
        except CannotStart as why:
            self._log.error(
                "executor_not_available", **job.log_fields, executor=job.executor, why=why.message
            )
            self.unhandled.add(job, why)
            return True
        if job.type not in self._handlers and (executor is None or executor.needs_handler):
            self.unhandled.add(job)
        else:
            return False
        return True

    def _end_unstarted(self, job: Job, end: AttemptEnd) -> None:
        self._refuse(job, self._reporter.write(job, end))

    def _refuse(self, job: Job, report: str) -> None:
        job.phase = "ended"
        self._add_report(job, report)

    def _launch(self, job: Job, handler: Handler | None) -> None:
        # A context of its own: what one handler sets must not be seen by the next.
        context = self._context.copy()
        if handler is None or job.executor != "python":
            if handler is not None and job.timeout is None:
                job.timeout = handler.timeout
            job.running = self._loop.create_task(self._run_elsewhere(job, handler), context=context)
            return
        if self._attempts.needs_loop(handler):
            task = self._loop.create_task(self._run_in_loop(job, handler), context=context)
            # A thread behind middleware is not stopped by cancelling the coroutine that waits for it.
            job.running = task if handler.is_async else None
            return
        try:
            self._attempts.submit(functools.partial(context.run, self._run_in_thread, job, handler))
        except CannotStart as why:
            self._loop.call_soon(self._not_started, job, why)

    async def _run_in_loop(self, job: Job, handler: Handler) -> None:
        try:
            with _span(job, handler):
                report = await self._attempts.run(JobAttempt(job, handler, self._attempts))
        except CannotStart as why:
            self._not_started(job, why)
            return
        except BaseException as error:  # noqa: BLE001 - a task that never ends would be held for ever
            report = self._reporter.broken(job, error)
        self._end(job, report)

    async def _run_elsewhere(self, job: Job, handler: Handler | None) -> None:
        current_job.set(job)
        try:
            with _span(job, handler):
                end = await self._executors.find(job.executor).run(job, handler)
                report = None if end is None else self._reporter.write(job, end)
        except CannotStart as why:
            self._not_started(job, why)
            return
        except BaseException as error:  # noqa: BLE001 - as above
            report = None if job.stop is not None else self._reporter.broken(job, error)
        self._end(job, report)

    def _not_started(self, job: Job, why: CannotStart) -> None:
        job.started = None
        if job.stop is not None:
            self._end(job, None)
        elif self._jobs.slots.end(job):
            self._log.warning("task_not_started", **job.log_fields, kind=why.kind, why=why.message)
            self.unhandled.add(job, why)
            self._start_waiting()

    def _run_in_thread(self, job: Job, handler: Handler) -> None:
        try:
            with _span(job, handler):
                report = self._attempts.run_here(JobAttempt(job, handler, self._attempts))
        except BaseException as error:  # noqa: BLE001 - as above
            report = self._reporter.broken(job, error)
        with contextlib.suppress(RuntimeError):  # the loop was closed: the worker has ended
            self._loop.call_soon_threadsafe(self._end, job, report)

    def _end(self, job: Job, report: str | None) -> None:
        if not self._jobs.slots.end(job):
            return
        if report is not None:
            self._add_report(job, report)
        elif job.stop is not None and job in self._jobs.held:
            self._jobs.drop(job)
        self._start_waiting()


def _span(job: Job, handler: Handler | None) -> AbstractContextManager[Any]:
    if tracing.API not in sys.modules:
        return tracing.OFF
    return tracing.attempt(job, None if handler is None else handler.queue)


def executor_refused(job: Job, handler: Handler) -> AttemptEnd:
    """The task asks for an executor that the declaration of its handler rules out."""
    return AttemptEnd.failed(
        "executor_refused",
        f"the handler of {job.type} is declared with executor={handler.executor!r}, and the task asks "
        f"for {job.executor!r}: enqueue it with the executor {handler.executor}",
    )
