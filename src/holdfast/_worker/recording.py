"""Recording: the steps of runs go to the database in batches, which gather during each round trip."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from holdfast._connections.acknowledged import (
    MAX_FAILURES,
    AcknowledgedBatches,
    Failure,
    split_or_repeat,
)
from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import steps
from holdfast._engine.steps import StartingStep
from holdfast._telemetry.logs import Log
from holdfast._worker.jobs import Job, Stop
from holdfast._worker.metrics import Metrics
from holdfast._worker.reading import RunRead, RunReader
from holdfast._worker.setbacks import got_over, is_outage, try_later
from holdfast._workflows.journal import Journal, Read, Recorded, Started
from holdfast._workflows.memory import FailedStep, StepMemo, memo_json, to_timestamp
from holdfast.errors import HoldfastError, RequestRefused, TransactionConflict, is_about_content

BUSY_SECONDS = 0.02
UNIQUE_VIOLATION = "23505"
THREAD_SECONDS = 0.002
"""How long the memo of a plain function waits for its next step or its end, with which it could travel."""


class Memo(NamedTuple):
    """What a run records as JSON text, and what to call with the verdict."""

    job: Job
    written: str
    done: Recorded
    failures: int = 0


class Start(NamedTuple):
    """The step of a run that starts children, the children as JSON, and what to call with their ids."""

    job: Job
    step: StartingStep
    tasks: str
    payloads: list[str] | None
    done: Started
    failures: int = 0


class StepRecorder:
    """Records the steps of runs, has them read, and looks after suspensions. All in the event loop."""

    def __init__(
        self,
        connection: WorkerConnection,
        worker_id: str,
        log: Log,
        metrics: Metrics,
        stop: Callable[[Job, Stop], None],
    ) -> None:
        self._connection = connection
        self._worker_id = worker_id
        self._log = log
        self._metrics = metrics
        self._stop = stop
        self._looks: list[str] = []
        self._starts: list[Start] = []
        self._failures = 0
        self._more = asyncio.Event()
        self._memos: AcknowledgedBatches[Memo, tuple[str, Any]] = AcknowledgedBatches(
            self._record,
            answered=self._answer,
            failed=self._not_recorded,
            size_of=lambda memo: len(memo.written),
            more=self._more,
        )
        # A run that is alone gains nothing by waiting for others: its memo is sent without the task below.
        self._is_alone = True
        self._is_idle = False
        self._sent: tuple[Job, StepMemo, Recorded] | None = None
        self._own_id = worker_id.encode()
        self._reader = RunReader(connection, worker_id, log, stop, self._more.set)

    def read(self, job: Job, done: Read, signals: Sequence[str] = ()) -> None:
        self._reader.add(RunRead(job, done, signals))

    def record(self, job: Job, written: str, done: Recorded) -> None:
        self._memos.add(Memo(job, written, done))

    def record_one(self, job: Job, memo: StepMemo, done: Recorded) -> None:
        """Send it now, if nothing is under way and no others are likely to come meanwhile."""
        if not (self._sent is None and self._is_alone and self._is_idle) or self._more.is_set():
            self.record(job, _run_of_one(job, memo), done)
            return
        statement = steps.record_step(
            self._own_id,
            job.task_id,
            job.token,
            name=memo.name,
            number=memo.number,
            took_ms=memo.took_ms,
            result=memo.result or "null",
            arguments=memo.arguments,
        )
        self._sent = (job, memo, done)
        if self._connection.run_now(statement, self._answered):
            self._metrics.sent("record_steps", 1)
        else:
            self._sent = None
            self.record(job, _run_of_one(job, memo), done)

    def look(self, job: Job) -> None:
        """A run was suspended: see whether what it waits for has come before that was committed."""
        self._looks.append(job.task_id)
        self._more.set()

    def start(
        self, job: Job, step: StartingStep, tasks: str, payloads: list[str] | None, done: Started
    ) -> None:
        self._start_again(Start(job, step, tasks, payloads, done))

    def _start_again(self, start: Start) -> None:
        self._starts.append(start)
        self._more.set()

    def step_failed(self, job: Job, failed: FailedStep) -> None:
        self._metrics.step_failed(job.type, failed.function)
        next_try = None if failed.retry_at is None else to_timestamp(failed.retry_at)
        self._log.warning(
            "step_failed",
            **job.log_fields,
            step=failed.name,
            step_try=failed.number,
            step_tries=failed.tries,
            exception=failed.error.get("exception"),
            error=str(failed.error.get("message")).partition("\n")[0][:500],
            next_try=next_try,
        )

    def _answered(self, recorded: bool | None) -> None:
        sent, self._sent = self._sent, None
        assert sent is not None  # noqa: S101 - it was sent
        job, memo, done = sent
        if recorded:
            done("recorded", None)
        else:  # the task repeats it with the same token, and learns why
            self._memos.add(Memo(job, _run_of_one(job, memo), done), "first")
        if self._memos.has_more or self._reader.has_more or self._looks or self._starts:
            self._more.set()

    async def run(self) -> None:
        while True:
            self._is_idle = True
            await self._more.wait()
            self._more.clear()
            if self._sent is not None:  # its answer comes back here if there is more to do
                continue
            self._is_idle = False
            if self._starts:
                await self._start_some()
            if self._reader.has_more:
                await self._reader.read_some()
            if self._memos.has_more:
                batch = self._memos.take()
                self._is_alone = len(batch) == 1
                await self._memos.send(batch)
            if self._looks:
                looks, self._looks = self._looks, []
                await self._look(looks)
            if self._memos.has_more or self._reader.has_more or self._starts:
                self._more.set()

    async def _record(self, batch: list[Memo]) -> Sequence[tuple[str, Any]]:
        """With the same tokens: what was recorded before a connection broke returns already."""
        statement = steps.record_steps(self._worker_id, [memo.written for memo in batch])
        self._metrics.sent("record_steps", len(batch))
        return await self._connection.run(lambda: statement)

    async def _not_recorded(self, failure: Failure[Memo]) -> list[list[Memo]]:
        """A step that cannot be stored fails alone, or is sent again alone."""
        again, error = await split_or_repeat(failure, self._connection.pause), failure.error
        if again:
            return again
        [memo] = failure.items
        if _is_about_content(error):
            self._log.error("step_refused", **memo.job.log_fields, error=str(error))
            memo.done("refused", error)
        elif memo.job.phase == "ended":
            memo.done("lost", None)
        else:
            delay = try_later(memo, partial(self._memos.add, place="alone"), "step_not_stored")
            fields = memo.job.log_fields
            self._log.warning("step_not_stored", **fields, error=str(error), retry_in=delay)
        return []

    async def _start_some(self) -> None:
        """Up to one that waited for a lock in vain: other runs go on before the next one waits."""
        starts, self._starts = sorted(self._starts, key=lambda start: start.failures), []
        while starts:
            if not await self._start(starts.pop(0)):
                break
        self._starts = [*starts, *self._starts]

    async def _start(self, start: Start) -> bool:
        """False if it waited for a lock in vain."""
        job, step, tasks, payloads, *_ = start
        while True:
            try:
                statement = steps.start_children(
                    self._worker_id, job.task_id, job.token, step=step, tasks=tasks, payloads=payloads
                )
                verdict, task_ids = await self._connection.run(lambda: statement)  # noqa: B023 - it runs now
            except HoldfastError as error:
                if is_outage(error):
                    # A repeated call returns the children that were started before the connection broke.
                    await self._connection.pause(error)
                    continue
                await self._not_started(start, error)
                return not isinstance(error, TransactionConflict)
            else:
                self._failures = 0
                self._answer_start(start, verdict, task_ids)
                return True

    async def _not_started(self, start: Start, error: HoldfastError) -> None:
        if isinstance(error, RequestRefused) or _is_about_content(error):
            start.done("refused", (), error)
        elif start.job.phase == "ended":
            start.done("lost", (), None)
        else:
            await self._slow_down(error)
            delay = try_later(start, self._start_again, "children_not_started")
            fields = start.job.log_fields
            self._log.warning("children_not_started", **fields, error=str(error), retry_in=delay)

    async def _slow_down(self, error: HoldfastError) -> None:
        """An error of the server, which may concern everything; a lock concerns those that wait for it."""
        if isinstance(error, TransactionConflict):
            return
        self._failures += 1
        if self._failures > MAX_FAILURES:
            await self._connection.pause(error)

    def _answer_start(self, start: Start, verdict: str, task_ids: list[str]) -> None:
        if start.failures:
            got_over(start)
        if verdict == "busy":
            asyncio.get_running_loop().call_later(BUSY_SECONDS, self._start_again, start)
            return
        if verdict in ("lost", "cancelled"):
            self._stop(start.job, "lost" if verdict == "lost" else "cancelled")
        start.done(verdict, task_ids, None)

    def _answer(self, memo: Memo, answer: tuple[str, Any]) -> None:
        verdict, stored = answer
        if memo.failures:
            got_over(memo)
        if verdict == "busy":
            self._memos.add_later(BUSY_SECONDS, memo)
            return
        if verdict == "already" and any(step["token"] != memo.job.token for step in stored):
            # Not possible while the lease is locked; the next attempt reads what is stored.
            verdict = "lost"
        if verdict in ("lost", "cancelled"):
            self._stop(memo.job, "lost" if verdict == "lost" else "cancelled")
        memo.done(verdict, None)

    async def _look(self, task_ids: list[str]) -> None:
        try:
            await self._connection.run(partial(steps.wake_waiting, task_ids))
        except HoldfastError as error:  # a sweep does it within a second
            self._log.warning("look_failed", error=str(error))


def _is_about_content(error: HoldfastError) -> bool:
    """A name that is there twice is, too: the same call, if it is under way, has locked the lease."""
    return is_about_content(error) or error.sqlstate == UNIQUE_VIOLATION


def _run_of_one(job: Job, memo: StepMemo) -> str:
    return steps.run_json(job.task_id, job.token, memo_json([memo]))


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
