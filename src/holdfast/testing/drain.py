"""Draining: what is due is run here and now, one task after the other, in the order of a claim."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, cast
from uuid import UUID

from holdfast.app import App
from holdfast.engine import Engine, leases, schedules, tasks
from holdfast.engine.documents import report_json, with_zone
from holdfast.engine.leases import Claimed
from holdfast.engine.tasks import TaskStatus
from holdfast.errors import InvalidArgument, ResultError, TaskNotFound
from holdfast.settings import Settings
from holdfast.testing.clock import Clock
from holdfast.testing.inline_runner import WORKER_ID, Recorder, Workbench, silence
from holdfast.worker.executors import database_executors
from holdfast.worker.job import Job, Stop
from holdfast.worker.job_transaction import JobTransaction
from holdfast.worker.scheduling import FireSchedules
from holdfast.worker.settling import release_statement

LEASE = timedelta(seconds=30)
EVERY_TYPE = [""]
"""The prefix of all of them."""

ENDED = ("succeeded", "failed", "dead_letter", "cancelled")
Ending = Literal["succeeded", "snoozed", "retrying", "failed", "dead_letter", "cancelled", "deleted"]


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt, and how its task stands after it; if `snoozed` or `retrying`, it is due at `run_at`."""

    task_id: UUID
    type: str
    arguments: Any
    attempt: int
    status: Ending
    result: Any = None
    error: str | None = None
    run_at: datetime | None = None
    exception: BaseException | None = field(default=None, repr=False)


class DrainLimitReached(AssertionError):
    """More was due than a drain may run."""


class HeldJob(Job):
    """Asks whether it is still held, where a worker would learn it from its next heartbeat."""

    __slots__ = ("_ask", "_why")

    def __init__(self, claimed: Claimed, ask: Callable[[Job], Stop | None]) -> None:
        self._ask = ask
        self._why: Stop | None = None
        super().__init__(claimed, time.monotonic())

    @property
    def stop(self) -> Stop | None:
        self._why = self._why or self._ask(self)
        return self._why

    @stop.setter
    def stop(self, why: Stop | None) -> None:
        self._why = why


class Drain:
    """Claims, runs and settles through `worker`, which has a worker's rights, and reads through `reader`."""

    def __init__(
        self,
        dsn: str,
        worker: Engine,
        reader: Engine,
        clock: Clock,
        apps: Sequence[App],
        *,
        only_theirs: bool,
        limit: int,
    ) -> None:
        """What no app has a handler for fails, as in a worker, or is left alone."""
        if limit < 1:
            raise InvalidArgument(f"limit is {limit}: give at least 1")
        self._worker = worker
        self._reader = reader
        self._clock = clock
        self._apps = apps
        self._schedules = FireSchedules(silence())
        self._recorder = Recorder(clock)
        self._ran: list[Ran] = []
        self._others: list[Job] = []
        self._only_theirs = only_theirs
        self._limit = limit
        self._prefixes = [t for app in apps for t in app.handlers] if only_theirs else EVERY_TYPE
        self._benches = [
            Workbench(self._recorder, app.handlers, app.middlewares, partial(JobTransaction, dsn), self._beat)
            for app in apps
        ]
        # Functions in the database, e-mail and text messages: as in a worker, with its settings.
        self._executors = database_executors(
            url=dsn,
            worker_id=WORKER_ID,
            settings=Settings.load(database_url=dsn),
            reporter=self._recorder,
            settled=lambda *_: None,
            log=silence(),
        )

    def run(self, until: datetime | timedelta | None) -> list[Ran]:
        with self._clock.standing(), asyncio.Runner() as loop:
            end = self._begin(until)
            try:
                while job := self._next(end):
                    if job.executor in self._executors:
                        written = loop.run(self._run_elsewhere(job))
                    else:
                        written = self._bench_of(job).run(job, loop)
                    self._settle(job, written)
            finally:
                loop.run(self._close_executors())
        return self._ran

    async def arun(self, until: datetime | timedelta | None) -> list[Ran]:
        """The engine is called in threads, so that what else runs in this event loop goes on."""
        with self._clock.standing():
            end = await asyncio.to_thread(self._begin, until)
            try:
                while job := await asyncio.to_thread(self._next, end):
                    if job.executor in self._executors:
                        written = await self._run_elsewhere(job)
                    else:
                        written = await self._bench_of(job).arun(job)
                    await asyncio.to_thread(self._settle, job, written)
            finally:
                await self._close_executors()
        return self._ran

    def close(self) -> None:
        self._release(self._others)
        for bench in self._benches:
            bench.close()

    async def _run_elsewhere(self, job: Job) -> str | None:
        self._recorder.forget()
        job.started, job.phase = time.monotonic(), "running"
        end = await self._executors[job.executor].run(job, None)
        return None if end is None else self._recorder.write(job, end)

    async def _close_executors(self) -> None:
        for executor in self._executors.values():
            await executor.close()

    def _bench_of(self, job: Job) -> Workbench:
        return next((bench for bench in self._benches if job.type in bench.handlers), self._benches[0])

    def _next(self, end: datetime | None) -> Job | None:
        """What is due, or becomes due before the end; for that, the clock is moved on."""
        while (job := self._claim()) or self._move_on(end):
            if job is None:
                continue
            if self._only_theirs and job.type not in self._bench_of(job).handlers:
                self._others.append(job)  # one of our types is the beginning of its type
                continue
            if len(self._ran) == self._limit:
                self._others.append(job)
                raise DrainLimitReached(self._explain())
            return job
        return None

    def _claim(self) -> Job | None:
        self._worker.run(leases.sweep())
        rows = self._worker.run(
            leases.claim(WORKER_ID, 1, queues=None, type_prefixes=self._prefixes, lease=LEASE, after=None)
        )
        return HeldJob(rows[0], self._beat) if rows else None

    def _begin(self, until: datetime | timedelta | None) -> datetime | None:
        """Where the clock may be moved, the schedules of the apps fire as under a worker that leads."""
        if until is None:
            return None
        for app in self._apps:
            self._reader.run(schedules.declare_schedules(app.name, app.schedules.values()))
        return self._clock.now() + until if isinstance(until, timedelta) else with_zone("until", until)

    def _fire_schedules(self) -> None:
        while (wait := self._worker.run(schedules.next_firing())) is not None and wait <= timedelta(0):
            self._schedules.run(self._worker.run)

    def _move_on(self, end: datetime | None) -> bool:
        """Whether something may be due now."""
        if end is None:
            return False
        self._fire_schedules()
        now = self._clock.now()
        task, firing = (
            self._worker.run(leases.next_due(None, self._prefixes)).due,
            self._worker.run(schedules.next_firing()),
        )
        # A task that is due and was not claimed is locked by another session: waiting here does not help.
        waits = [wait for wait in (task, firing) if wait is not None and timedelta(0) < wait <= end - now]
        if waits:
            self._clock.set(now + min(waits))
            self._fire_schedules()
            return True
        if now < end:
            self._clock.set(end)
        return False

    def _beat(self, job: Job) -> Stop | None:
        progress = None if job.progress is None else report_json(job.progress)
        held = leases.held_json(job.task_id, job.token, progress=progress)
        (verdict,) = self._worker.run(leases.heartbeat(WORKER_ID, [held]))
        return None if verdict in ("held", "busy") else cast("Stop", verdict)

    def _release(self, jobs: list[Job]) -> None:
        if jobs:
            self._worker.run(release_statement(WORKER_ID, jobs))

    def _settle(self, job: Job, written: str | None) -> None:
        if written is not None:
            self._worker.run(leases.finish(WORKER_ID, [written]))
        elif job.stop not in (None, "cancelled"):
            self._release([job])
        self._ran.append(self._describe(job))

    def _describe(self, job: Job) -> Ran:
        task = self._reader.run(tasks.task_status(UUID(job.task_id)))
        if task is None:
            raise TaskNotFound(f"task {job.task_id} was removed while it ran")
        status = _status_after(job, task)
        return Ran(
            task_id=task.task_id,
            type=task.type,
            arguments=task.payload,
            attempt=job.attempt,
            status=status,
            result=self._result(task) if status == "succeeded" else None,
            error=None if status in ("succeeded", "snoozed") else task.last_error or task.reason,
            run_at=task.run_at if status in ("snoozed", "retrying") else None,
            exception=self._recorder.error,
        )

    def _result(self, task: TaskStatus) -> Any:
        """Of the announced type, as a handle would give it."""
        end = self._reader.run(tasks.task_end(task.task_id))
        handler = next((b.handlers[task.type] for b in self._benches if task.type in b.handlers), None)
        if end is None or handler is None:
            return task.result
        try:
            return handler.load_result(end.result_json)
        except ResultError:
            return task.result

    def _explain(self) -> str:
        [(most, times)] = Counter(ran.type for ran in self._ran).most_common(1)
        last = next(ran for ran in reversed(self._ran) if ran.type == most)
        return (
            f"more is due after {self._limit} attempts, {times} of {most}, the last one {last.status}. "
            "Does it snooze or enqueue itself for ever? If so many are meant, raise the limit."
        )


def _status_after(job: Job, task: TaskStatus) -> Ending:
    if task.deleted_at is not None:
        return "deleted"
    if task.status in ENDED:
        return cast("Ending", task.status)
    return "snoozed" if job.status == "snooze" else "retrying"
