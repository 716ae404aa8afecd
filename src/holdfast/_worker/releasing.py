"""Releasing: tasks that this worker will not run go back, and records of killed runs are kept."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import Statement, leases
from holdfast._engine.leases import FleetState
from holdfast._telemetry.logs import Log
from holdfast._worker.jobs import HeldJobs, Job
from holdfast._worker.leader import Execute
from holdfast._worker.metrics import Metrics
from holdfast.errors import DatabaseUnavailable, HoldfastError, TransactionConflict, is_about_content

MAX_TRIES = 10
BUSY_SECONDS = 0.1
STALE_SECONDS = 1.0


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
    was running when the worker could not handle the steps of runs, perhaps because of it, is left to that:
    its attempt counts. Otherwise it would end all workers in turn.
    """

    def __init__(self, connection: WorkerConnection, worker_id: str, log: Log, metrics: Metrics) -> None:
        super().__init__()
        self._connection = connection
        self._worker_id = worker_id
        self._log = log
        self._metrics = metrics
        self.steps_failed = False

    def release_soon(self, jobs: list[Job], let_go: Callable[[Job], None]) -> None:
        """Until it calls `let_go`, the leases have to be renewed."""
        if jobs:
            self._begin(self._release(jobs, let_go))

    async def _release(self, jobs: list[Job], let_go: Callable[[Job], None]) -> None:
        left = jobs
        while left := [job for job in left if job.lease_ends > time.monotonic() and not self._counts(job)]:
            try:
                self._metrics.sent("release", len(left))
                verdicts = await self._connection.run(partial(release_statement, self._worker_id, left))
                busy = [job for job, verdict in zip(left, verdicts, strict=True) if verdict == "busy"]
            except Exception as error:  # noqa: BLE001 - jobs that nobody lets go of would be renewed for ever
                if not isinstance(error, HoldfastError) or is_about_content(error):
                    self._log.error("release_refused", tasks=len(left), error=str(error), exc_info=error)
                    break
                # A locked row, or one that the server cannot write, must not delay the others.
                if len(left) > 1 and not isinstance(error, DatabaseUnavailable):
                    await asyncio.gather(self._release(left[::2], let_go), self._release(left[1::2], let_go))
                    break
                await self._connection.pause(error)
            else:
                for job in set(left).difference(busy):
                    let_go(job)
                left = busy
                if left:
                    await asyncio.sleep(BUSY_SECONDS)
        for job in jobs:
            if not self._counts(job):
                let_go(job)

    def _counts(self, job: Job) -> bool:
        return self.steps_failed and job.started is not None


class StaleJobs:
    """Releases what was claimed in advance and cannot start soon, also while the event loop is blocked.

    An errand of the heartbeat's thread. What the database has not answered or has locked is tried again, and
    its lease is renewed.
    """

    def __init__(self, jobs: HeldJobs, worker_id: str, log: Log, metrics: Metrics) -> None:
        self.due = 0.0
        self._jobs = jobs
        self._worker_id = worker_id
        self._log = log
        self._metrics = metrics
        self._stale: dict[Job, None] = {}

    def run(self, execute: Execute) -> None:
        now = time.monotonic()
        self.due = now + STALE_SECONDS
        self._stale.update(dict.fromkeys(self._jobs.slots.take_stale()))
        for job in [job for job in self._stale if job.lease_ends <= now]:
            self._forget(job)
        if not self._stale:
            return
        stale = list(self._stale)
        self._metrics.sent("release", len(stale))
        verdicts = execute(release_statement(self._worker_id, stale))
        released = [job for job, verdict in zip(stale, verdicts, strict=True) if verdict != "busy"]
        for job in released:
            self._forget(job)
        if released:
            self._log.info("tasks_released", tasks=len(released), why="they waited too long to start")

    def learn(self, state: FleetState, asked: float) -> None:
        """Nothing: only time makes them stale."""

    def _forget(self, job: Job) -> None:
        del self._stale[job]
        self._jobs.let_go(job)


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
            except (DatabaseUnavailable, TransactionConflict) as error:
                await self._connection.pause(error)
            except HoldfastError as error:
                self._log.warning("killed_run_not_recorded", **job.log_fields, error=str(error))
                return
            else:
                return


def release_statement(worker_id: str, jobs: Iterable[Job]) -> Statement[list[leases.Verdict]]:
    return leases.release(worker_id, [leases.held_json(job.task_id, job.token) for job in jobs])
