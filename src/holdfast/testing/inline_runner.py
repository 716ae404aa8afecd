"""Runs attempts in the test process, with the code of a worker, and records how they ended."""

import asyncio
import contextvars
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol, TypeVar
from unittest import SkipTest
from uuid import uuid4

from holdfast._engine.leases import Claimed
from holdfast._telemetry.logs import SilentLog
from holdfast._worker.attempt import Attempt
from holdfast._worker.attempts import Attempts, JobAttempt, OpenRun
from holdfast._worker.batches import BatchAttempt, RunningBatch, decode_batch
from holdfast._worker.handler import Handler
from holdfast._worker.jobs import Job
from holdfast._worker.report import (
    DatabaseClock,
    HandlerTimeout,
    NotDecoded,
    NotEncoded,
    ReportedTask,
    Reporter,
)
from holdfast._worker.transactions import JobTransaction
from holdfast._worker.unhandled import no_handler
from holdfast._worker.watchdog import WatchedHandler
from holdfast.middleware import Middleware
from holdfast.testing.clock import Clock

T = TypeVar("T")
R = TypeVar("R")
WORKER_ID = "holdfast.testing"
INTERRUPT_AFTER_SECONDS = 0.5

# Exceptions for the test runner, not for the task: Ctrl-C, and the ends of a test.
_FOR_RUNNER: tuple[type[BaseException], ...] = (KeyboardInterrupt, SkipTest)
with suppress(ModuleNotFoundError):  # other runners do without it
    import pytest

    _FOR_RUNNER = (*_FOR_RUNNER, pytest.fail.Exception, pytest.skip.Exception, pytest.exit.Exception)


class Interrupted(BaseException):
    """Ends an attempt of a drain early. Its steps so far stay recorded."""


class RecordingReporter(Reporter):
    """Records what the last handler returned or raised."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(_ExactClock(clock))
        self.value: Any = None
        self.error: BaseException | None = None
        self.errors: dict[str, BaseException | None] = {}
        """By task: a batch has several."""

    def forget(self) -> None:
        self.value = self.error = None
        self.errors = {}

    def returned(self, task: ReportedTask, handler: Handler, value: Any) -> str:
        self.value = value
        return super().returned(task, handler, value)

    def raised(self, task: ReportedTask, handler: Handler, error: BaseException) -> str:
        if isinstance(error, (*_FOR_RUNNER, Interrupted)):
            raise error
        self.error = (error.__cause__ or error) if isinstance(error, NotDecoded | NotEncoded) else error
        self.errors[task.task_id] = self.error
        with _seeded_random(f"{task.type} {task.attempt}"):
            return super().raised(task, handler, error)


class CoroutineRunner(Protocol):
    """What runs coroutines for a caller without an event loop, such as asyncio.Runner."""

    def run(self, coro: Coroutine[Any, Any, T], *, context: contextvars.Context | None = None) -> T: ...


class InlineRunner:
    """Runs the handlers of one app, one at a time."""

    def __init__(
        self,
        recorder: RecordingReporter,
        handlers: Mapping[str, Handler],
        middlewares: Sequence[Middleware],
        open_transaction: Callable[[Job], JobTransaction],
        *,
        open_run: OpenRun,
        heartbeat: Callable[[Job], object] | None = None,
    ) -> None:
        self.handlers = handlers
        self._recorder = recorder
        self._heartbeat = heartbeat or _ignore
        self._attempts = Attempts(
            worker_id=WORKER_ID,
            middlewares=middlewares,
            reporter=recorder,
            watch=_TimeLimits(),
            open_transaction=open_transaction,
            open_run=open_run,
            settled=_ignore,
            send_progress=self._send_progress,
            log=SilentLog(),
        )

    def run(self, job: Job, loop: CoroutineRunner) -> str | None:
        """Run it in this thread, a coroutine in the loop. Each handler gets its own context variables."""
        handler = self._start(job)
        if handler is None:
            return self._recorder.write(job, no_handler(job))
        attempt = JobAttempt(job, handler, self._attempts)
        if self._attempts.needs_loop(handler):
            running = self._attempts.run(attempt)
            return loop.run(running, context=contextvars.copy_context())
        return contextvars.copy_context().run(self._attempts.run_here, attempt)

    async def arun(self, job: Job) -> str | None:
        """Run it in the running event loop, a plain function in a thread."""
        handler = self._start(job)
        if handler is None:
            return self._recorder.write(job, no_handler(job))
        attempt = JobAttempt(job, handler, self._attempts)
        if not self._attempts.needs_loop(handler):
            return await asyncio.to_thread(self._attempts.run_here, attempt)
        return await self._in_task(attempt)

    def run_batch(self, jobs: Sequence[Job], loop: CoroutineRunner) -> list[tuple[Job, str | None]]:
        """Run the tasks of one type together, and return the report about each."""
        handler, batch, refused = self._start_batch(jobs)
        if not batch.jobs:
            return list(refused)
        attempt, context = BatchAttempt(batch, handler, self._attempts), contextvars.copy_context()
        if self._attempts.needs_loop(handler):
            running = self._attempts.run(attempt)
            reports = loop.run(running, context=context)
        else:
            reports = context.run(self._attempts.run_here, attempt)
        return [*refused, *zip(batch.jobs, reports or (), strict=True)]

    async def arun_batch(self, jobs: Sequence[Job]) -> list[tuple[Job, str | None]]:
        """The same in the running event loop."""
        handler, batch, refused = self._start_batch(jobs)
        if not batch.jobs:
            return list(refused)
        attempt = BatchAttempt(batch, handler, self._attempts)
        return [*refused, *zip(batch.jobs, await self._in_task(attempt) or (), strict=True)]

    async def _in_task(self, attempt: Attempt[R]) -> R | None:
        """A separate task, as in a worker: cancelling the test must not look like an error of the handler."""
        running = self._attempts.run(attempt)
        task = asyncio.create_task(running)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            raise
        return task.result()

    def close(self) -> None:
        self._attempts.close()

    def _start_batch(self, jobs: Sequence[Job]) -> tuple[Handler, RunningBatch, list[tuple[Job, str]]]:
        for job in jobs:
            self._start(job)
        handler = self.handlers[jobs[0].type]
        return handler, *decode_batch(jobs, handler, self._recorder)

    def _send_progress(self, job: Job) -> None:
        self._heartbeat(job)

    def _start(self, job: Job) -> Handler | None:
        self._recorder.forget()
        job.started = time.monotonic()
        job.phase = "running"
        return self.handlers.get(job.type)


class UnrecordedTransaction(JobTransaction):
    """The transaction of a handler that runs without a task: its commit records no outcome."""

    def statement(self, worker_id: str, written: str) -> None:
        """Nothing is recorded."""


def job_without_task(handler: Handler, payload: str, clock: float) -> Job:
    """A job for a handler that runs alone, outside any worker."""
    claimed = Claimed(
        task_id=str(uuid4()),
        token=0,
        type=handler.type,
        payload=payload,
        attempt=1,
        max_attempts=handler.max_attempts,
        executor=handler.executor,
        metadata=None,
        timeout=None,
        lease_until=clock + 30.0,
        run_at=clock,
        lane_id=0,
        queue="",
        ends_at=None,
        clock=clock,
    )
    return Job(claimed, time.monotonic())


class _ExactClock(DatabaseClock):
    """Reads the engine's clock. A worker's estimate drifts by milliseconds, which would break tests."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def at(self, monotonic: float, delay: float = 0.0) -> str:
        del monotonic
        return (self._clock.now() + timedelta(seconds=delay)).isoformat()


@contextmanager
def _seeded_random(seed: str) -> Iterator[None]:
    """Make a delay with jitter the same in every run of a test."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


class _TimeLimits:
    """Interrupts a handler that is past its time limit, unless asyncio has ended it."""

    def __init__(self) -> None:
        self._timers: dict[WatchedHandler, threading.Timer] = {}

    def watch(self, job: Job, limit: float | None, *, in_loop: bool = False) -> WatchedHandler:
        watched = WatchedHandler(job, limit, in_loop=in_loop)
        if limit is not None:
            seconds = limit + INTERRUPT_AFTER_SECONDS if in_loop else limit
            timer = self._timers[watched] = threading.Timer(seconds, watched.interrupt, [HandlerTimeout])
            timer.daemon = True
            timer.start()
        return watched

    def forget(self, watched: WatchedHandler) -> None:
        if watched in self._timers:
            self._timers.pop(watched).cancel()


def _ignore(*given: object) -> None:
    del given
