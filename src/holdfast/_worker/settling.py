"""Settling: reports go to the database until it acknowledges them."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from functools import partial

from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import leases, steps
from holdfast._telemetry.logs import Log
from holdfast._worker.jobs import Job
from holdfast._worker.metrics import Metrics
from holdfast.errors import HoldfastError, Refused, TryAgain, UnexpectedDatabaseError, is_about_content

MAX_AT_ONCE = 1000
MAX_CHARACTERS = 16 * 1024 * 1024
SHORTEST_ASIDE_SECONDS = 0.02
ASIDE_SECONDS = 2.0
MAX_FAILURES = 16
STORE_SECONDS = 60.0
"""For how long a report is sent again that the server answers with an error of its own."""
JOINS_SECONDS = 0.01
"""How often a worker looks while tasks end for which runs may wait."""
NO_JOINS_SECONDS = 0.5
"""How often a worker asks whether any run waits for a task, as long as none does."""

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
        self._waiting: list[Report] = []
        self._sending = 0
        self._aside = 0
        self._delays: dict[tuple[str, int], float] = {}
        self._failing_since: dict[tuple[str, int], float] = {}
        self._failures = 0
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
                await self._isolate(batch, self._put_aside)
                return
            except HoldfastError as error:
                if is_about_content(error):
                    await self._isolate(batch, partial(self._refused, error))
                    return
                if isinstance(error, UnexpectedDatabaseError | Refused):
                    await self._server_failed(batch, error)
                    return
                # With the same tokens: what was accepted before the connection broke returns already_done.
                await self._connection.pause(error)
            else:
                self._failures = 0
                for (job, report), verdict in zip(batch, verdicts, strict=True):
                    if verdict == "busy":
                        self._put_aside(job, report)
                    else:
                        self._delays.pop((job.task_id, job.token), None)
                        self._failing_since.pop((job.task_id, job.token), None)
                        self._done(job, verdict)
                return

    async def _isolate(self, batch: list[Report], settle: Callable[[Job, str], None]) -> None:
        """One report must not delay the others: halve the batch until it is alone, and settle it so."""
        if len(batch) > 1:
            half = len(batch) // 2
            await self._send(batch[:half])
            await self._send(batch[half:])
        else:
            settle(*batch[0])

    async def _server_failed(self, batch: list[Report], error: HoldfastError) -> None:
        """An error of the server, not of the results. It may concern one row, or everything."""
        self._failures += 1
        if self._failures > MAX_FAILURES:  # more than it takes to find one among many: it is everything
            await self._connection.pause(error)
        await self._isolate(batch, partial(self._not_accepted, error))

    def _not_accepted(self, error: HoldfastError, job: Job, report: str) -> None:
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
        self._put_aside(job, report)

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

    def _refused(self, error: HoldfastError, job: Job, report: str) -> None:
        plain = _not_storable(job, error)
        if report == plain:
            self._log.error("result_refused", **job.log_fields, error=str(error))
            self._done(job, "refused")
        else:
            job.status = "failed"
            self.add(job, plain)

    async def _finish(self, reports: Sequence[str]) -> list[leases.Verdict]:
        self._metrics.sent("finish", len(reports))
        looks_again = self._looks_again()
        return await self._connection.run(
            lambda: leases.finish(self._worker_id, reports, looks_again=looks_again)
        )


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
