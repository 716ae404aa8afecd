"""Settling: reports go to the database until it acknowledges them."""

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

from holdfast._connections.acknowledged import (
    MAX_ITEMS,
    AcknowledgedBatches,
    Failure,
    split_or_repeat,
)
from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import leases, steps
from holdfast._telemetry.logs import Log
from holdfast._worker.jobs import Job
from holdfast._worker.metrics import Metrics
from holdfast.errors import HoldfastError, TransactionConflict, is_about_content

SHORTEST_ASIDE_SECONDS = 0.02
ASIDE_SECONDS = 2.0
STORE_SECONDS = 60.0
"""For how long a report is sent again that the server answers with an error of its own."""
JOINS_SECONDS = 0.01
"""How often a worker looks while tasks end for which runs may wait."""
NO_JOINS_SECONDS = 0.5
"""How often a worker asks whether any run waits for a task, as long as none does."""

Report = tuple[Job, str]
"""A job and its report as JSON text."""


class Settler:
    """Sends the reports of attempts, and keeps each until the database has acknowledged it."""

    def __init__(
        self,
        connection: WorkerConnection,
        worker_id: str,
        log: Log,
        metrics: Metrics,
        done: Callable[[Job, str], None],
        *,
        looks_again: Callable[[], bool],
    ) -> None:
        """`looks_again` says whether this worker claims by itself after a task has ended."""
        self._connection = connection
        self._worker_id = worker_id
        self._looks_again = looks_again
        self._log = log
        self._metrics = metrics
        self._done = done
        self._delays: dict[tuple[str, int], float] = {}
        self._failing_since: dict[tuple[str, int], float] = {}
        self._batches: AcknowledgedBatches[Report, leases.Verdict] = AcknowledgedBatches(
            self._finish, answered=self._answered, failed=self._failed, size_of=lambda report: len(report[1])
        )

    def add(self, job: Job, report: str) -> None:
        self._batches.add((job, report))

    @property
    def unsettled(self) -> int:
        return self._batches.unacknowledged

    def is_behind(self) -> bool:
        """Whether reports cannot be sent.

        Without a report, a failure says nothing: it was that of a release, which is not repeated after the
        end of its lease, and the connection would not be used again.
        """
        return self._connection.failing and self.unsettled > 0

    async def emptied(self) -> None:
        """Wait until every report is acknowledged."""
        await self._batches.emptied()

    async def run(self) -> None:
        await self._batches.run()

    async def _finish(self, batch: list[Report]) -> list[leases.Verdict]:
        """With the same tokens: what was accepted before a connection broke returns already_done."""
        reports = [report for _, report in batch]
        self._metrics.sent("finish", len(reports))
        looks_again = self._looks_again()
        return await self._connection.run(
            lambda: leases.finish(self._worker_id, reports, looks_again=looks_again)
        )

    def _answered(self, settled: Report, verdict: leases.Verdict) -> None:
        job, _ = settled
        if verdict == "busy":
            self._put_aside(settled, "last")
        else:
            self._delays.pop((job.task_id, job.token), None)
            self._failing_since.pop((job.task_id, job.token), None)
            self._done(job, verdict)

    async def _failed(self, failure: Failure[Report]) -> list[list[Report]]:
        again = await split_or_repeat(failure, self._connection.pause)
        if not again:
            [(job, report)] = failure.items
            if is_about_content(failure.error):
                self._refused(job, report, failure.error)
            elif isinstance(failure.error, TransactionConflict):
                self._put_aside((job, report), "alone")
            else:
                self._not_accepted(job, report, failure.error)
        return again

    def _not_accepted(self, job: Job, report: str, error: HoldfastError) -> None:
        """Try again until the server has had time to recover; then have the task run again."""
        now = time.monotonic()
        since = self._failing_since.setdefault((job.task_id, job.token), now)
        if since == now:
            self._log.warning(
                "result_not_stored", **job.log_fields, error=str(error), sqlstate=error.sqlstate
            )
        elif now - since > STORE_SECONDS:
            self._log.error("result_given_up", **job.log_fields, error=str(error), sqlstate=error.sqlstate)
            self._failing_since[job.task_id, job.token] = float("inf")  # the report below is not given up
            job.status, report = "retry", _not_stored(job, error)
        self._put_aside((job, report), "alone")

    def _put_aside(self, settled: Report, place: Literal["last", "alone"]) -> None:
        """Mostly for the moment of a heartbeat; longer if an application keeps a transaction open."""
        job, _ = settled
        key = (job.task_id, job.token)
        delay = self._delays.get(key, SHORTEST_ASIDE_SECONDS)
        self._delays[key] = min(2 * delay, ASIDE_SECONDS)
        self._batches.add_later(delay, settled, place)

    def _refused(self, job: Job, report: str, error: HoldfastError) -> None:
        plain = _not_storable(job, error)
        if report == plain:
            self._log.error("result_refused", **job.log_fields, error=str(error))
            self._done(job, "refused")
        else:
            job.status = "failed"
            self.add(job, plain)


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
        for n in range(0, len(ended) if self._joins_exist else 0, MAX_ITEMS):
            moved = await self._busy.run(partial(steps.wake_joined, ended[n : n + MAX_ITEMS]))
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


def _not_storable(job: Job, error: HoldfastError) -> str:
    """The values of the result are refused, and would be again: the task fails."""
    return _without_result(job, "failed", "result_not_storable", error)


def _not_stored(job: Job, error: HoldfastError) -> str:
    """The server cannot store the result: the task runs again."""
    return _without_result(job, "retry", "result_not_stored", error)


def _without_result(job: Job, status: leases.ResultStatus, kind: str, error: HoldfastError) -> str:
    reason = f"the result could not be stored: {type(error).__name__}"
    if error.sqlstate is not None:
        reason += f" (SQLSTATE {error.sqlstate})"
    described = json.dumps({"kind": kind, "message": reason})
    return leases.result_json(job.task_id, job.token, status, error=described)
