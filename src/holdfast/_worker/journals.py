"""Journals: how the runs of this worker reach the recorder, from the event loop and from threads."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from holdfast._engine import steps
from holdfast._engine.steps import StartingStep
from holdfast._worker.attempts import Attempts
from holdfast._worker.jobs import Job
from holdfast._worker.recording import StepRecorder
from holdfast._worker.transactions import RecordedTransaction
from holdfast._workflows.drivers import Awaiting, Blocking, Driver
from holdfast._workflows.journal import Host, Journal, Read, Recorded, Started
from holdfast._workflows.memory import FailedStep, RunState, StepMemo, memo_json
from holdfast._workflows.run import Run

THREAD_SECONDS = 0.002
"""How long the memo of a plain function waits for its next step or its end, with which it could travel."""


class RunOpener:
    """Begins the run of a job at the first step of its handler."""

    def __init__(
        self,
        url: str,
        worker_id: str,
        recorder: StepRecorder,
        loop: asyncio.AbstractEventLoop,
        settings: Callable[[], Any],
    ) -> None:
        self._settings = settings
        self._url = url
        self._worker_id = worker_id
        self._recorder = recorder
        self._loop = loop

    def __call__(self, job: Job, attempts: Attempts, *, is_async: bool) -> Run:
        if job.run is not None:
            return job.run
        transaction = partial(RecordedTransaction, self._url, self._worker_id, job)
        host = JobHost(job, attempts, transaction)
        state = RunState(job)
        if is_async:
            driver: Driver = Awaiting(state, LoopJournal(job, self._recorder, self._loop), host)
        else:
            driver = Blocking(state, ThreadJournal(job, self._recorder, self._loop), host)
        job.run = Run(state, driver, self._settings)
        return job.run


class LoopJournal(Journal):
    """Of a handler in the worker's event loop."""

    def __init__(self, job: Job, recorder: StepRecorder, loop: asyncio.AbstractEventLoop) -> None:
        self._job = job
        self._recorder = recorder
        self._loop = loop

    def read(self, done: Read, signals: Sequence[str] = ()) -> None:
        self._recorder.read(self._job, done, signals)

    def record(
        self, kept: Sequence[StepMemo], tries: Sequence[FailedStep], done: Recorded, *, lazy: bool
    ) -> None:
        job = self._job
        written = memo_json(kept, tries)
        self._recorder.record(job, steps.run_json(job.task_id, job.token, written, lazy=lazy), done)

    def record_one(self, memo: StepMemo, done: Recorded) -> None:
        self._recorder.record_one(self._job, memo, done)

    def start(self, step: StartingStep, tasks: str, payloads: list[str] | None, done: Started) -> None:
        self._recorder.start(self._job, step, tasks, payloads, done)

    def later(self, call: Callable[[], None]) -> None:
        """At the next turn of the loop: if the handler ends now, its last memo goes with the report."""
        self._loop.call_soon(call)

    def step_failed(self, failed: FailedStep) -> None:
        self._recorder.step_failed(self._job, failed)


class ThreadJournal(LoopJournal):
    """Of a handler in a thread of the worker."""

    def read(self, done: Read, signals: Sequence[str] = ()) -> None:
        self._loop.call_soon_threadsafe(super().read, done, signals)

    def record(
        self, kept: Sequence[StepMemo], tries: Sequence[FailedStep], done: Recorded, *, lazy: bool
    ) -> None:
        self._loop.call_soon_threadsafe(partial(super().record, kept, tries, done, lazy=lazy))

    def record_one(self, memo: StepMemo, done: Recorded) -> None:
        self._loop.call_soon_threadsafe(super().record_one, memo, done)

    def start(self, step: StartingStep, tasks: str, payloads: list[str] | None, done: Started) -> None:
        self._loop.call_soon_threadsafe(super().start, step, tasks, payloads, done)

    def step_failed(self, failed: FailedStep) -> None:
        self._loop.call_soon_threadsafe(super().step_failed, failed)

    def later(self, call: Callable[[], None]) -> None:
        """Soon, in the thread of the loop."""
        self._loop.call_soon_threadsafe(self._loop.call_later, THREAD_SECONDS, call)


class JobHost(Host):
    """What runs the handler of a job."""

    def __init__(
        self,
        job: Job,
        attempts: Attempts,
        open_transaction: Callable[[], RecordedTransaction],
    ) -> None:
        self._job = job
        self._attempts = attempts
        self._open_transaction = open_transaction
        self._task = _current_task()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return self._attempts.in_thread(call)

    def limited(self, seconds: float, call: Callable[[], Any]) -> Any:
        return self._attempts.limited(self._job, seconds, call)

    def open_transaction(self) -> RecordedTransaction:
        return self._open_transaction()


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread
        return None
