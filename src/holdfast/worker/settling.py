"""Settling: reports, releases and records of killed runs go to the database until it acknowledges them."""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from holdfast.connections.worker_connection import WorkerConnection
from holdfast.engine import Statement, leases, steps
from holdfast.errors import (
    DatabaseUnavailable,
    HoldfastError,
    InvalidArgument,
    TryAgain,
    UnexpectedDatabaseError,
)
from holdfast.logs import Log
from holdfast.worker.jobs import Job
from holdfast.worker.metrics import Metrics

MAX_AT_ONCE = 1000
MAX_CHARACTERS = 16 * 1024 * 1024
MAX_TRIES = 10
SHORTEST_ASIDE_SECONDS = 0.02
ASIDE_SECONDS = 2.0
BUSY_SECONDS = 0.1
JOINS_SECONDS = 0.01
"""How often a worker looks while tasks end for which runs may wait."""
NO_JOINS_SECONDS = 0.5
"""How often a worker asks whether any run waits for a task, as long as none does."""
_QUERY_CANCELED = "57014"

Report = tuple[Job, str]
"""A job and its report as JSON text."""


class Settler:
    """Sends reports in batches: they gather while one round trip is in flight, then all go at once.

    It keeps each report until the database has acknowledged it.
    """

    def __init__(
        self,
        connection: WorkerConnection,
        worker_id: str,
        log: Log,
        metrics: Metrics,
        done: Callable[[Job, str], None],
    ) -> None:
        self._connection = connection
        self._worker_id = worker_id
        self._log = log
        self._metrics = metrics
        self._done = done
        self._waiting: list[Report] = []
        self._sending = 0
        self._aside = 0
        self._delays: dict[tuple[str, int], float] = {}
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, job: Job, report: str) -> None:
        self._waiting.append((job, report))
        self._more.set()
        self._empty.clear()

    @property
    def unsettled(self) -> int:
        return len(self._waiting) + self._sending + self._aside

    def is_behind(self) -> bool:
        """Whether reports cannot be sent.

        Without a report, a failure says nothing: it was that of a release, which is not repeated after the
        end of its lease, and the connection would not be used again.
        """
        return self._connection.failing and self.unsettled > 0

    async def emptied(self) -> None:
        """Wait until every report is acknowledged."""
        await self._empty.wait()

    async def run(self) -> None:
        while True:
            await self._more.wait()
            batch = self._next_batch()
            self._sending = len(batch)
            await self._send(batch)
            self._sending = 0
            if not self._waiting:
                self._more.clear()
            if not self.unsettled:
                self._empty.set()

    def _next_batch(self) -> list[Report]:
        """As many as fit into one statement; fewer if they are large."""
        batch = self._waiting[:MAX_AT_ONCE]
        characters = 0
        for n, (_, report) in enumerate(batch):
            characters += len(report)
            if characters > MAX_CHARACTERS:
                batch = batch[: max(1, n)]
                break
        self._waiting = self._waiting[len(batch) :]
        return batch

    async def _send(self, batch: list[Report]) -> None:
        while True:
            try:
                verdicts = await self._finish([report for _, report in batch])
            except TryAgain:
                await self._locked(batch)
                return
            except HoldfastError as error:
                if _is_about_content(error):
                    await self._refused(batch, error)
                    return
                # With the same tokens: what was accepted before the connection broke returns already_done.
                await self._connection.pause(error)
            else:
                for (job, report), verdict in zip(batch, verdicts, strict=True):
                    if verdict == "busy":
                        self._put_aside(job, report)
                    else:
                        self._delays.pop((job.task_id, job.token), None)
                        self._done(job, verdict)
                return

    async def _locked(self, batch: list[Report]) -> None:
        """A locked row must not delay the other reports: halve the batch until it is alone, and retry it."""
        if len(batch) > 1:
            half = len(batch) // 2
            await self._send(batch[:half])
            await self._send(batch[half:])
            return
        self._put_aside(*batch[0])

    def _put_aside(self, job: Job, report: str) -> None:
        """Mostly for the moment of a heartbeat; longer if an application keeps a transaction open."""
        key = (job.task_id, job.token)
        delay = self._delays.get(key, SHORTEST_ASIDE_SECONDS)
        self._delays[key] = min(2 * delay, ASIDE_SECONDS)
        self._aside += 1
        asyncio.get_running_loop().call_later(delay, self._resume, job, report)

    def _resume(self, job: Job, report: str) -> None:
        self._aside -= 1
        self.add(job, report)

    async def _refused(self, batch: list[Report], error: HoldfastError) -> None:
        """A report that cannot be stored must not delay the others: send each alone, and fail that task."""
        if len(batch) > 1:
            for one in batch:
                await self._send([one])
            return
        job, report = batch[0]
        plain = _not_storable(job, error)
        if report == plain:
            self._log.error("result_refused", **job.log_fields, error=str(error))
            self._done(job, "lost")
        else:
            job.status = "failed"
            await self._send([(job, plain)])

    async def _finish(self, reports: Sequence[str]) -> list[leases.Verdict]:
        self._metrics.sent("finish", len(reports))
        finish = leases.finish(self._worker_id, reports)
        return await self._connection.run(lambda: finish)


class JoinLooker:
    """After the commit of ends: looks whether runs wait for those tasks. Costs little where no run waits.

    As long as no run waits for a task, it asks only now and then whether that is still so. A run that begins
    to wait later looks itself, after its commit: the ends before that question need not be looked at.
    """

    def __init__(self, quiet: WorkerConnection, busy: WorkerConnection, log: Log) -> None:
        """`quiet` is a connection that is open anyway."""
        self._quiet = quiet
        self._busy = busy
        self._log = log
        self._ended: list[str] = []
        self._again: list[str] = []
        self._looked = 0.0
        self._joins_exist = False
        self._timer: asyncio.TimerHandle | None = None
        self._more = asyncio.Event()

    def ended(self, job: Job) -> None:
        self._ended.append(job.task_id)
        self._look_soon()

    def expect_joins(self) -> None:
        """A run of this worker waits for tasks since its last commit."""
        if self._joins_exist:
            return
        self._joins_exist = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._look_soon()

    async def run(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            self._timer = None
            self._looked = time.monotonic()
            ended, self._ended = self._ended, []
            try:
                await self._look_at(ended)
            except HoldfastError as error:  # a sweep does it within a second
                self._log.warning("look_failed", error=str(error))

    async def _look_at(self, ended: list[str]) -> None:
        again, self._again = self._again, []
        if again:
            await self._busy.run(partial(steps.wake_waiting, again))
        if ended and not self._joins_exist:
            self._joins_exist = await self._quiet.run(partial(steps.wake_joined, [])) is not None
        for n in range(0, len(ended) if self._joins_exist else 0, MAX_AT_ONCE):
            moved = await self._busy.run(partial(steps.wake_joined, ended[n : n + MAX_AT_ONCE]))
            self._joins_exist = moved is not None
            self._again += [str(task_id) for task_id in moved or ()]
        if self._again:
            self._look_soon()

    def _look_soon(self) -> None:
        """At once after a pause; while many tasks end, each look is for those of a moment."""
        if self._timer is None:
            pause = JOINS_SECONDS if self._joins_exist else NO_JOINS_SECONDS
            delay = self._looked + pause - time.monotonic() if self._joins_exist else pause
            self._timer = asyncio.get_running_loop().call_later(max(0.0, delay), self._more.set)


class BackgroundSends:
    """Statements that are sent in asyncio tasks of their own."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[None]] = set()

    async def emptied(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def close(self) -> None:
        for sending in self._under_way:
            sending.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _begin(self, call: Coroutine[Any, Any, None]) -> None:
        sending = asyncio.create_task(call)
        self._under_way.add(sending)
        sending.add_done_callback(self._under_way.discard)


class Releaser(BackgroundSends):
    """Gives back tasks that this worker will not run: others get them at once, and no attempt is counted.

    It retries until the database answers or the leases end, which gives the tasks back as well. A task that
    has gone outside is left to that: its attempt counts, and the next one knows about it.
    """

    def __init__(self, connection: WorkerConnection, worker_id: str, log: Log, metrics: Metrics) -> None:
        super().__init__()
        self._connection = connection
        self._worker_id = worker_id
        self._log = log
        self._metrics = metrics

    def release_soon(self, jobs: list[Job]) -> None:
        if jobs:
            self._begin(self._release(jobs))

    async def _release(self, jobs: list[Job]) -> None:
        while jobs := [job for job in jobs if job.lease_ends > time.monotonic() and not job.outside]:
            try:
                self._metrics.sent("release", len(jobs))
                verdicts = await self._connection.run(partial(release_statement, self._worker_id, jobs))
            except TryAgain as error:
                if len(jobs) > 1:  # a locked row must not delay the others
                    await asyncio.gather(self._release(jobs[::2]), self._release(jobs[1::2]))
                    return
                await self._connection.pause(error)
            except DatabaseUnavailable as error:
                await self._connection.pause(error)
            except HoldfastError as error:
                self._log.error("release_refused", tasks=len(jobs), error=str(error))
                return
            else:
                jobs = [job for job, verdict in zip(jobs, verdicts, strict=True) if verdict == "busy"]
                if jobs:
                    await asyncio.sleep(BUSY_SECONDS)


class KilledRuns(BackgroundSends):
    """Records how runs ended that the worker killed because their tasks were taken from it.

    Nothing depends on these records, so they are tried for a while only.
    """

    def __init__(self, connection: WorkerConnection, worker_id: str, log: Log) -> None:
        super().__init__()
        self._connection = connection
        self._worker_id = worker_id
        self._log = log

    def record(self, job: Job, error: str) -> None:
        self._begin(self._send(job, leases.killed_json(job.task_id, job.token, error)))

    async def _send(self, job: Job, killed: str) -> None:
        recording = partial(leases.record_killed, self._worker_id, [killed])
        for _ in range(MAX_TRIES):
            try:
                await self._connection.run(recording)
            except (DatabaseUnavailable, TryAgain) as error:
                await self._connection.pause(error)
            except HoldfastError as error:
                self._log.warning("killed_run_not_recorded", **job.log_fields, error=str(error))
                return
            else:
                return


def release_statement(worker_id: str, jobs: Iterable[Job]) -> Statement[list[leases.Verdict]]:
    return leases.release(worker_id, [leases.held_json(job.task_id, job.token) for job in jobs])


def _is_about_content(error: HoldfastError) -> bool:
    """Any other error may be over soon: a lost connection, a deadlock, a migration, a full disk."""
    if isinstance(error, InvalidArgument):
        return True
    return isinstance(error, UnexpectedDatabaseError) and error.sqlstate != _QUERY_CANCELED


def _not_storable(job: Job, error: HoldfastError) -> str:
    reason = f"the result could not be stored: {type(error).__name__}"
    described = json.dumps({"kind": "result_not_storable", "message": reason})
    return leases.result_json(job.task_id, job.token, "failed", error=described)
