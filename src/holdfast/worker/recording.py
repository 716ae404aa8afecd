"""Recording: the steps of runs go to the database in batches, which gather during each round trip."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from holdfast.connections.worker_connection import WorkerConnection
from holdfast.engine import leases, steps
from holdfast.errors import HoldfastError, InvalidArgument, Refused, TryAgain, UnexpectedDatabaseError
from holdfast.executors.step_transaction import StepTransaction
from holdfast.logs import Log
from holdfast.worker.attempts import Attempts
from holdfast.worker.jobs import Job, Stop
from holdfast.worker.metrics import Metrics
from holdfast.workflows.async_run import AsyncRun
from holdfast.workflows.blocking_run import BlockingRun
from holdfast.workflows.journal import Journal, Read, Recorded, Started
from holdfast.workflows.memory import StepMemo, memo_json
from holdfast.workflows.run import Run

MAX_AT_ONCE = 1000
MAX_CHARACTERS = 16 * 1024 * 1024
BUSY_SECONDS = 0.02
THREAD_SECONDS = 0.002
"""How long the memo of a plain function waits for its next step or its end, with which it could travel."""
_UNIQUE = "23505"
_QUERY_CANCELED = "57014"

Memo = tuple[Job, str, Recorded]
"""A job, what it records as JSON text, and what to call with the verdict."""
Start = tuple[Job, str, str, list[str] | None, Started]
"""A job, the step that starts children, them and their payloads as JSON, and what to call with their ids."""


class StepRecorder:
    """Reads what runs remember, records their steps, and looks after suspensions. All in the event loop."""

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
        self._reads: list[tuple[Job, Read]] = []
        self._memos: list[Memo] = []
        self._looks: list[str] = []
        self._starts: list[Start] = []
        self._more = asyncio.Event()
        # A run that is alone gains nothing by waiting for others: its memo is sent without the task below.
        self._is_alone = True
        self._is_idle = False
        self._sent: tuple[Job, StepMemo, Recorded] | None = None
        self._own_id = worker_id.encode()

    def read(self, job: Job, done: Read) -> None:
        self._reads.append((job, done))
        self._more.set()

    def record(self, job: Job, written: str, done: Recorded) -> None:
        self._memos.append((job, written, done))
        self._more.set()

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

    def start(self, job: Job, held: str, tasks: str, payloads: list[str] | None, done: Started) -> None:
        self._starts.append((job, held, tasks, payloads, done))
        self._more.set()

    def _answered(self, recorded: bool | None) -> None:
        sent, self._sent = self._sent, None
        assert sent is not None  # noqa: S101 - it was sent
        job, memo, done = sent
        if recorded:
            done("recorded", None)
        else:  # the task repeats it with the same token, and learns why
            self._memos.insert(0, (job, _run_of_one(job, memo), done))
        if self._memos or self._reads or self._looks or self._starts:
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
                starts, self._starts = self._starts, []
                for start in starts:
                    await self._start(start)
            if self._reads:
                reads, self._reads = self._reads, []
                await self._read(reads)
            if self._memos:
                batch = self._next_memos()
                self._is_alone = len(batch) == 1
                await self._record(batch)
            if self._looks:
                looks, self._looks = self._looks, []
                await self._look(looks)
            if self._memos:
                self._more.set()

    def _next_memos(self) -> list[Memo]:
        """As many as fit into one statement; fewer if they are large."""
        batch = self._memos[:MAX_AT_ONCE]
        characters = 0
        for n, (_, written, _) in enumerate(batch):
            characters += len(written)
            if characters > MAX_CHARACTERS:
                batch = batch[: max(1, n)]
                break
        self._memos = self._memos[len(batch) :]
        return batch

    async def _read(self, batch: list[tuple[Job, Read]]) -> None:
        held = [leases.held_json(job.task_id, job.token) for job, _ in batch]
        statement = steps.read_steps(self._worker_id, held)
        while True:
            try:
                facts = await self._connection.run(lambda: statement)
            except HoldfastError as error:
                await self._connection.pause(error)
                continue
            break
        for job, done in batch:
            rows = facts.rows.get(job.task_id)
            if rows is None or rows[0][0] == "lost":
                self._stop(job, "lost")
                rows = None
            done(rows, facts.clock)

    async def _record(self, batch: list[Memo]) -> None:
        while True:
            statement = steps.record_steps(self._worker_id, [written for _, written, _ in batch])
            try:
                self._metrics.sent("record_steps", len(batch))
                verdicts = await self._connection.run(lambda: statement)  # noqa: B023 - it runs now
            except TryAgain as error:
                await self._connection.pause(error)
            except HoldfastError as error:
                if _is_about_content(error):
                    await self._refused(batch, error)
                    return
                # With the same tokens: what was recorded before the connection broke returns already.
                await self._connection.pause(error)
            else:
                for memo, (verdict, stored) in zip(batch, verdicts, strict=True):
                    self._answer(memo, verdict, stored)
                return

    async def _start(self, start: Start) -> None:
        job, held, tasks, payloads, done = start
        of = steps.run_json(job.task_id, job.token, held)
        statement = steps.start_children(self._worker_id, of, tasks, payloads)
        while True:
            try:
                verdict, task_ids = await self._connection.run(lambda: statement)
            except TryAgain as error:
                await self._connection.pause(error)
            except HoldfastError as error:
                if isinstance(error, Refused) or _is_about_content(error):
                    done("refused", (), error)
                    return
                # A repeated call returns the children that were started before the connection broke.
                await self._connection.pause(error)
            else:
                self._answer_start(start, verdict, task_ids)
                return

    def _answer_start(self, start: Start, verdict: str, task_ids: list[str]) -> None:
        job, *_, done = start
        if verdict == "busy":
            asyncio.get_running_loop().call_later(BUSY_SECONDS, self.start, *start)
            return
        if verdict in ("lost", "cancelled"):
            self._stop(job, "lost" if verdict == "lost" else "cancelled")
        done(verdict, task_ids, None)

    def _answer(self, memo: Memo, verdict: str, stored: Any) -> None:
        job, _, done = memo
        if verdict == "busy":
            asyncio.get_running_loop().call_later(BUSY_SECONDS, self.record, *memo)
            return
        if verdict == "already" and any(step["token"] != job.token for step in stored):
            # Not possible while the lease is locked; the next attempt reads what is stored.
            verdict = "lost"
        if verdict in ("lost", "cancelled"):
            self._stop(job, "lost" if verdict == "lost" else "cancelled")
        done(verdict, None)

    async def _refused(self, batch: list[Memo], error: HoldfastError) -> None:
        """A step that cannot be stored must not delay the others: send each alone, and tell its run."""
        if len(batch) > 1:
            for one in batch:
                await self._record([one])
            return
        job, _, done = batch[0]
        self._log.error("step_refused", **job.log_fields, error=str(error))
        done("refused", error)

    async def _look(self, task_ids: list[str]) -> None:
        try:
            await self._connection.run(partial(steps.wake_waiting, task_ids))
        except HoldfastError as error:  # a sweep does it within a second
            self._log.warning("look_failed", error=str(error))


class RunOpener:
    """Begins the run of a job at the first step of its handler."""

    def __init__(
        self, url: str, worker_id: str, recorder: StepRecorder, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._url = url
        self._worker_id = worker_id
        self._recorder = recorder
        self._loop = loop

    def __call__(self, job: Job, attempts: Attempts, *, is_async: bool) -> Run:
        if job.run is not None:
            return job.run
        host = JobHost(job, attempts, partial(StepTransaction, self._url, self._worker_id, job))
        if is_async:
            job.run = AsyncRun(job, LoopJournal(job, self._recorder), host)
        else:
            job.run = BlockingRun(job, ThreadJournal(job, self._recorder, self._loop), host)
        return job.run


class LoopJournal(Journal):
    """Of a handler in the worker's event loop."""

    def __init__(self, job: Job, recorder: StepRecorder) -> None:
        self._job = job
        self._recorder = recorder

    def read(self, done: Read) -> None:
        self._recorder.read(self._job, done)

    def record(self, written: str, done: Recorded, *, lazy: bool) -> None:
        job = self._job
        self._recorder.record(job, steps.run_json(job.task_id, job.token, written, lazy=lazy), done)

    def record_one(self, memo: StepMemo, done: Recorded) -> None:
        self._recorder.record_one(self._job, memo, done)

    def start(self, held: str, tasks: str, payloads: list[str] | None, done: Started) -> None:
        self._recorder.start(self._job, held, tasks, payloads, done)


class ThreadJournal(LoopJournal):
    """Of a handler in a thread of the worker."""

    def __init__(self, job: Job, recorder: StepRecorder, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(job, recorder)
        self._loop = loop

    def read(self, done: Read) -> None:
        self._loop.call_soon_threadsafe(super().read, done)

    def record(self, written: str, done: Recorded, *, lazy: bool) -> None:
        self._loop.call_soon_threadsafe(partial(super().record, written, done, lazy=lazy))

    def record_one(self, memo: StepMemo, done: Recorded) -> None:
        self._loop.call_soon_threadsafe(super().record_one, memo, done)

    def start(self, held: str, tasks: str, payloads: list[str] | None, done: Started) -> None:
        self._loop.call_soon_threadsafe(super().start, held, tasks, payloads, done)

    def later(self, call: Callable[[], None]) -> None:
        """Call it soon, from another thread."""
        self._loop.call_soon_threadsafe(self._loop.call_later, THREAD_SECONDS, call)


class JobHost:
    """What runs the handler of a job."""

    def __init__(self, job: Job, attempts: Attempts, open_transaction: Callable[[], StepTransaction]) -> None:
        self._job = job
        self._attempts = attempts
        self.open_transaction = open_transaction
        self._task = _current_task()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return self._attempts.in_thread(call)

    def limited(self, seconds: float, call: Callable[[], Any]) -> Any:
        return self._attempts.limited(self._job, seconds, call)


def _run_of_one(job: Job, memo: StepMemo) -> str:
    return steps.run_json(job.task_id, job.token, memo_json([memo]))


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread
        return None


def _is_about_content(error: HoldfastError) -> bool:
    """Any other error may be over soon: a lost connection, a deadlock, a migration, a full disk."""
    if isinstance(error, InvalidArgument):
        return True
    # A unique violation: the same call, whose connection broke, was under way. The next one finds its rows.
    return isinstance(error, UnexpectedDatabaseError) and error.sqlstate not in (_QUERY_CANCELED, _UNIQUE)
