"""Draining: runs the due tasks in the test process, one after the other, in the order of claims."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any, Literal, NoReturn, cast
from uuid import UUID

from holdfast._engine import Engine, chores, leases, schedules, steps, tasks
from holdfast._engine.leases import Claimed
from holdfast._engine.steps import WaitingRun
from holdfast._engine.tasks import ENDED, TaskStatus
from holdfast._serialization.text import load_json, report_json, with_zone
from holdfast._telemetry.logs import SilentLog
from holdfast._worker.batches import is_alone
from holdfast._worker.executor import ExecutorWorker
from holdfast._worker.executors import Executors
from holdfast._worker.handler import Handler
from holdfast._worker.jobs import Job, Stop
from holdfast._worker.registration import schedules_of
from holdfast._worker.releasing import release_statement
from holdfast._worker.report import AttemptEnd
from holdfast._worker.scheduling import FireSchedules
from holdfast._worker.transactions import JobTransaction
from holdfast.app import App
from holdfast.errors import InvalidArgument, NotFound, ResultError
from holdfast.options import IN_DATABASE
from holdfast.settings import Settings
from holdfast.testing.clock import Clock
from holdfast.testing.inline_runner import (
    WORKER_ID,
    CoroutineRunner,
    InlineRunner,
    Interrupted,
    RecordingReporter,
)
from holdfast.testing.interruptions import Interruptions

LEASE = timedelta(seconds=30)
EVERY_TYPE = [""]
"""The empty prefix fits every type."""

Ending = Literal[
    "succeeded",
    "suspended",
    "snoozed",
    "continued",
    "retrying",
    "failed",
    "dead_letter",
    "cancelled",
    "deleted",
]


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt, and the status of its task afterwards. One that has not ended is due at `run_at`."""

    task_id: UUID
    type: str
    arguments: Any
    attempt: int
    status: Ending
    result: Any = None
    error: str | None = None
    run_at: datetime | None = None
    waits: Sequence[WaitingRun] = ()
    exception: BaseException | None = field(default=None, repr=False)


class DrainLimitReached(AssertionError):
    """More tasks were due than the drain may run."""


class HeldJob(Job):
    """A job that asks the database whether it is still held, where a worker waits for a heartbeat."""

    __slots__ = ("_ask", "_clock", "_why")

    def __init__(
        self, claimed: Claimed, ask: Callable[[Job], Stop | None], clock: Callable[[], datetime]
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._why: Stop | None = None
        super().__init__(claimed, time.monotonic())

    @property
    def stop(self) -> Stop | None:
        self._why = self._why or self._ask(self)
        return self._why

    @stop.setter
    def stop(self, why: Stop | None) -> None:
        self._why = why

    def now(self) -> float:
        return self._clock().timestamp()


def in_database(settings: Settings, worker_id: str, write: Callable[[Any, AttemptEnd], str]) -> Executors:
    """The executors of a worker without an application, for tasks that run in the database."""
    worker = ExecutorWorker(
        app=App(settings=settings),
        url=settings.database_url or "",
        worker_id=worker_id,
        settings=settings,
        log=SilentLog(),
        write=write,
        settled=lambda *_: None,
        record_killed=lambda *_: None,
        send_progress=lambda: None,
        open_journal=_refuse_journal,
        max_result_bytes=lambda: 0,
    )
    return Executors(worker)


class Drain:
    """Claims and settles through `worker`, which has the rights of a worker; reads through `reader`."""

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
        interruptions: Interruptions,
    ) -> None:
        """With `only_theirs`, tasks without a handler are left alone; otherwise they fail, as in a worker."""
        if limit < 1:
            raise InvalidArgument(f"limit is {limit}: give at least 1")
        self._worker = worker
        self._reader = reader
        self._clock = clock
        self._apps = apps
        self._schedules = FireSchedules(SilentLog())
        self._recorder = RecordingReporter(clock)
        self._ran: list[Ran] = []
        self._others: list[Job] = []
        self._only_theirs = only_theirs
        self._limit = limit
        self._interruptions = interruptions
        self._prefixes = [t for app in apps for t in app.handlers] if only_theirs else EVERY_TYPE
        self._runners = [
            InlineRunner(
                self._recorder,
                app.handlers,
                app.middlewares,
                partial(JobTransaction, dsn),
                open_run=partial(
                    interruptions.open_run,
                    dsn,
                    worker,
                    WORKER_ID,
                    changes_of=cache(partial(_changes_in, app.handlers)),
                    settings=partial(_settings_of, app),
                ),
                heartbeat=self._heartbeat,
            )
            for app in apps
        ]
        # Functions in the database and messages run as in a worker, with its settings.
        self._executors = in_database(Settings.load(database_url=dsn), WORKER_ID, self._recorder.write)

    def new_loop(self) -> AbstractContextManager[CoroutineRunner]:
        """Where asynchronous handlers run."""
        return asyncio.Runner()

    def run(self, until: datetime | timedelta | None) -> list[Ran]:
        with self._clock.standing(), self.new_loop() as loop:
            end = self._begin(until)
            try:
                while job := self._next(end):
                    if jobs := self._batch_of(job):
                        self._settle_all(self._runner_of(job).run_batch(jobs, loop))
                        continue
                    try:
                        if job.executor in IN_DATABASE:
                            written = loop.run(self._run_elsewhere(job))
                        else:
                            written = self._runner_of(job).run(job, loop)
                    except Interrupted:
                        self._release([job])
                    else:
                        self._settle(job, written)
            finally:
                loop.run(self._executors.close())
        self._interruptions.check()
        return self._ran

    async def arun(self, until: datetime | timedelta | None) -> list[Ran]:
        """The same in the running event loop. The engine is called in threads, which keeps the loop free."""
        with self._clock.standing():
            end = await asyncio.to_thread(self._begin, until)
            try:
                while job := await asyncio.to_thread(self._next, end):
                    if jobs := await asyncio.to_thread(self._batch_of, job):
                        done = await self._runner_of(job).arun_batch(jobs)
                        await asyncio.to_thread(self._settle_all, done)
                        continue
                    try:
                        if job.executor in IN_DATABASE:
                            written = await self._run_elsewhere(job)
                        else:
                            written = await self._runner_of(job).arun(job)
                    except Interrupted:
                        await asyncio.to_thread(self._release, [job])
                    else:
                        await asyncio.to_thread(self._settle, job, written)
            finally:
                await self._executors.close()
        self._interruptions.check()
        return self._ran

    def close(self) -> None:
        self._release(self._others)
        for runner in self._runners:
            runner.close()

    async def _run_elsewhere(self, job: Job) -> str | None:
        self._recorder.forget()
        job.started, job.phase = time.monotonic(), "running"
        end = await self._executors.find(job.executor).run(job, None)
        return None if end is None else self._recorder.write(job, end)

    def _runner_of(self, job: Job) -> InlineRunner:
        return next((one for one in self._runners if job.type in one.handlers), self._runners[0])

    def _next(self, end: datetime | None) -> Job | None:
        """Claim a task that is due, or that becomes due before the end, for which the clock is advanced."""
        while (job := self._claim()) or self._advance(end):
            if job is None:
                continue
            if self._only_theirs and job.type not in self._runner_of(job).handlers:
                self._others.append(job)  # one of the types is a prefix of its type
                continue
            if len(self._ran) == self._limit:
                self._others.append(job)
                raise DrainLimitReached(_explain(self._ran, self._limit))
            return job
        return None

    def _claim(self) -> Job | None:
        self._worker.run(leases.sweep())
        for kind in self._worker.run(chores.due_chores()):
            self._worker.run(chores.do_chores(kind))
        return next(iter(self._claim_up_to(1, self._prefixes)), None)

    def _claim_up_to(self, count: int, prefixes: list[str]) -> list[Job]:
        rows = self._worker.run(
            leases.claim(WORKER_ID, count, queues=None, type_prefixes=prefixes, lease=LEASE, after=None)
        )
        return [HeldJob(row, self._heartbeat, self._clock.now) for row in rows]

    def _batch_of(self, job: Job) -> list[Job]:
        """The task and others of its type that are due, for a handler that takes many; else nothing."""
        handler = self._runner_of(job).handlers.get(job.type)
        if handler is None or handler.batch is None or job.executor != "python":
            return []
        jobs = [job]
        if not is_alone(job):
            room = min(handler.batch.size, self._limit - len(self._ran)) - 1
            found = self._claim_up_to(room, [job.type]) if room > 0 else []
            jobs += [one for one in found if one.type == job.type and not is_alone(one)]
            self._release([one for one in found if one not in jobs])
        return jobs

    def _settle_all(self, done: list[tuple[Job, str | None]]) -> None:
        for job, written in done:
            self._settle(job, written)

    def _begin(self, until: datetime | timedelta | None) -> datetime | None:
        """Return the end. If the clock may be advanced, schedules fire as under a leader."""
        if until is None:
            return None
        for app in self._apps:
            if (declaration := schedules_of(app)) is not None:
                self._reader.run(declaration)
        return self._clock.now() + until if isinstance(until, timedelta) else with_zone("until", until)

    def _fire_schedules(self) -> None:
        while (wait := self._worker.run(schedules.next_firing())) is not None and wait <= timedelta(0):
            self._schedules.run(self._worker.run)

    def _advance(self, end: datetime | None) -> bool:
        """Advance the clock to what is due next. False if nothing is due before the end."""
        if end is None:
            return False
        self._fire_schedules()
        now = self._clock.now()
        task, firing = (
            self._worker.run(leases.next_due(None, self._prefixes)).due,
            self._worker.run(schedules.next_firing()),
        )
        # A due task that was not claimed is locked by another session: waiting does not help.
        waits = [wait for wait in (task, firing) if wait is not None and timedelta(0) < wait <= end - now]
        if waits:
            self._clock.set(now + min(waits))
            self._fire_schedules()
            return True
        if now < end:
            self._clock.set(end)
        return False

    def _heartbeat(self, job: Job) -> Stop | None:
        progress = None if job.progress is None else report_json(job.progress)
        held = leases.held_json(job.task_id, job.token, progress=progress)
        (verdict,) = self._worker.run(leases.heartbeat(WORKER_ID, [held]))
        return None if verdict in ("held", "busy") else cast("Stop", verdict)

    def _release(self, jobs: list[Job]) -> None:
        if jobs:
            self._worker.run(release_statement(WORKER_ID, jobs))

    def _settle(self, job: Job, written: str | None) -> None:
        if written is not None and job.status == "succeeded" and job.run is not None:
            handler = self._runner_of(job).handlers[job.type]
            if self._interruptions.is_to_replay(job, handler.result.encode(self._recorder.value)):
                self._release([job])
                return
        if written is not None:
            self._worker.run(leases.finish(WORKER_ID, [written]))
        elif job.stop not in (None, "cancelled"):
            self._release([job])
        self._ran.append(self._describe(job))

    def _describe(self, job: Job) -> Ran:
        task = self._reader.run(tasks.task_status(UUID(job.task_id)))
        if task is None:
            raise NotFound(f"task {job.task_id} was removed while it ran")
        status = _status_after(job, task)
        waits = self._reader.run(steps.waits_of(task.task_id)) if status == "suspended" else ()
        return Ran(
            task_id=task.task_id,
            type=task.type,
            # Not those of the task, which has others if the run has gone on.
            arguments=load_json(job.payload),
            attempt=job.attempt,
            status=status,
            result=self._result(task) if status == "succeeded" else None,
            error=None
            if status in ("succeeded", "snoozed", "suspended", "continued")
            else task.last_error or task.reason,
            run_at=task.run_at if status in ("snoozed", "suspended", "retrying") else None,
            waits=waits,
            exception=self._recorder.errors.get(job.task_id),
        )

    def _result(self, task: TaskStatus) -> Any:
        """The result with its declared type, as a handle returns it."""
        end = self._reader.run(tasks.task_snapshot(task.task_id))
        handler = next((one.handlers[task.type] for one in self._runners if task.type in one.handlers), None)
        if end is None or handler is None:
            return task.result
        try:
            return handler.result.load(end.result_json)
        except ResultError:
            return task.result


def _explain(ran: Sequence[Ran], limit: int) -> str:
    [(busiest, times)] = Counter(one.type for one in ran).most_common(1)
    last = next(one for one in reversed(ran) if one.type == busiest)
    return (
        f"tasks are still due after {limit} attempts, {times} of {busiest}, the last one {last.status}. "
        "Does it snooze or enqueue itself for ever? If not, raise the limit."
    )


def _status_after(job: Job, task: TaskStatus) -> Ending:
    if task.deleted_at is not None:
        return "deleted"
    if task.status in ENDED:
        return cast("Ending", task.status)
    return {"snooze": "snoozed", "suspend": "suspended", "continue": "continued"}.get(job.status, "retrying")  # type: ignore[return-value]


def _changes_in(handlers: Mapping[str, Handler], task_type: str) -> Sequence[str]:
    return handlers[task_type].changes


def _refuse_journal(_job: Job) -> NoReturn:
    raise AssertionError("what runs in the database has no steps")


def _settings_of(app: App) -> Settings:
    return app.settings
