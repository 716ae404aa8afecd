"""Claiming: claim after claim while there is room and work; otherwise wait for either."""

import asyncio
import json
import random
import time
from collections.abc import Callable

from holdfast._connections.listener import WakeupListener
from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import Statement, leases, workers
from holdfast._engine.leases import Rest
from holdfast._telemetry.logs import Log
from holdfast._worker.heartbeat import Heartbeat
from holdfast._worker.jobs import HeldJobs, Job
from holdfast._worker.metrics import Metrics
from holdfast._worker.registration import REMOVED
from holdfast._worker.report import DatabaseClock, to_timestamp
from holdfast._worker.settling import Settler
from holdfast.errors import DatabaseUnavailable, HoldfastError, TransactionConflict
from holdfast.settings import Settings

MAX_AT_ONCE = 10_000
BUSY_SECONDS = 0.05
HOLD_SECONDS = 0.25
POLL_WITHOUT_NOTIFY_SECONDS = 2.0
"""How often a worker that gets no wake-ups looks, at the least."""
LOOK_AGAIN_SECONDS = 0.2
CURSOR_SECONDS = 1.0


class Cursor:
    """Where the last claim ended in each lane, so that the next does not walk over the same rows again."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[str, str]] = {}
        self._since = 0.0

    def current(self) -> str | None:
        """Dropped after a second, because tasks that were inserted behind it are not seen until then."""
        if self._ends and time.monotonic() - self._since > CURSOR_SECONDS:
            self._ends = {}
        return json.dumps(self._ends) if self._ends else None

    def advance(self, jobs: list[Job], *, short: bool) -> None:
        if short:
            self._ends = {}
            return
        if not self._ends:
            self._since = time.monotonic()
        for lane_id, last in {job.lane_id: job for job in jobs}.items():
            self._ends[str(lane_id)] = {"run_at": to_timestamp(last.run_at), "task_id": last.task_id}


class Claimer:
    """The statements of claiming, on a connection of their own, and whether the database has us as idle."""

    def __init__(
        self,
        connection: WorkerConnection,
        worker_id: str,
        settings: Settings,
        *,
        register: Callable[[], Statement[int]],
        clock: DatabaseClock,
        metrics: Metrics,
    ) -> None:
        self.connection = connection
        self.idle = False
        self._worker_id = worker_id
        self._queues = list(settings.worker_queues) or None
        self._prefixes = list(settings.worker_type_prefixes) or None
        self._lease = settings.lease
        self._register = register
        self._clock = clock
        self._metrics = metrics
        self._cursor = Cursor()

    async def claim(self, count: int) -> list[Job]:
        """Claim at most this many tasks; fewer are returned only if no more are due."""
        asked = time.monotonic()
        claimed = await self.connection.run(
            lambda: leases.claim(
                self._worker_id,
                count,
                queues=self._queues,
                type_prefixes=self._prefixes,
                lease=self._lease,
                after=self._cursor.current(),
            )
        )
        jobs = [Job(one, asked) for one in claimed]
        self._metrics.sent("claim", len(jobs))
        if jobs:
            self._clock.heard(claimed[0].clock)
            self._metrics.claimed += len(jobs)
        self._cursor.advance(jobs, short=len(jobs) < count)
        return jobs

    async def mark_idle(self, *, idle: bool) -> bool:
        """Register again, and return true, if another worker removed this one: it would never be woken."""
        removed = not await self._mark(idle)
        if removed:
            await self.connection.run(self._register)
            await self._mark(idle)
        self.idle = idle
        return removed

    def forget_idle(self) -> None:
        """A worker that was registered again is not idle until it says so."""
        self.idle = False

    async def rest(self, *, holding: bool) -> Rest:
        """Learn how long until a claim may find something."""
        found = await self.connection.run(
            lambda: leases.rest(
                self._worker_id, self._queues, self._prefixes, self._metrics.vitals(), holding=holding
            )
        )
        self.idle = self.idle and found.idle
        return found

    async def _mark(self, idle: bool) -> bool:
        return await self.connection.run(lambda: workers.mark_idle(self._worker_id, idle))


class ClaimLoop:
    """Claims until it is stopped."""

    def __init__(
        self,
        claimer: Claimer,
        *,
        jobs: HeldJobs,
        take: Callable[[list[Job]], None],
        listener: WakeupListener,
        poll_seconds: float,
        stopping: asyncio.Event,
        settler: Settler,
        heartbeat: Heartbeat,
        log: Log,
    ) -> None:
        self._claimer = claimer
        self._jobs = jobs
        self._take = take
        self._listener = listener
        self._poll_seconds = poll_seconds
        self._stopping = stopping
        self._settler = settler
        self._heartbeat = heartbeat
        self._log = log
        self._look_again = False
        self._empty_claims = 0

    async def run(self) -> None:
        while not self._stopping.is_set():
            if self._must_hold():
                await self._hold(HOLD_SECONDS)
                continue
            wanted = self._jobs.wanted()
            if wanted == 0:
                await self._jobs.wait_for_room()
                continue
            try:
                await self._claim(min(MAX_AT_ONCE, wanted))
            except (DatabaseUnavailable, TransactionConflict) as error:
                self._claimer.forget_idle()
                await self._claimer.connection.pause(error)
            except HoldfastError as error:
                self._log.error("claim_refused", error=str(error))
                await self._hold(self._poll_seconds)

    def _must_hold(self) -> bool:
        """A task that could not be renewed or reported should not be started."""
        return self._heartbeat.failing or self._settler.is_behind()

    async def _claim(self, wanted: int) -> None:
        self._listener.woken.clear()
        self._jobs.looks.begin()
        jobs = await self._claimer.claim(wanted)
        if jobs:
            self._empty_claims = 0
            self._take(jobs)
            await asyncio.sleep(0)  # the handlers start before the next statement is sent
        if len(jobs) == wanted:
            if self._claimer.idle:
                await self._mark_idle(idle=False)
        elif not self._claimer.idle and self._listener.listening:
            # Mark first, then look again: the next claim finds what was enqueued in between.
            await self._mark_idle(idle=True)
        else:
            await self._rest()

    async def _mark_idle(self, *, idle: bool) -> None:
        if await self._claimer.mark_idle(idle=idle):
            self._log.warning("registered_again", why=REMOVED)
        self._look_again = idle

    def _until(self, due: float) -> float:
        """A task that is due and was not claimed is locked by another session, for an unknown time."""
        if due > 0:
            self._empty_claims = 0
            return due + 0.001
        self._empty_claims += 1
        return BUSY_SECONDS * float(2 ** min(10, self._empty_claims - 1))

    async def _hold(self, seconds: float) -> None:
        self._listener.woken.clear()
        await self._listener.wait(seconds)

    async def _rest(self) -> None:
        """Wait for a wake-up or the next due task. Every poll interval, ask whether there is one."""
        was_idle = self._claimer.idle
        found = await self._claimer.rest(holding=bool(self._jobs.held))
        while self._claimer.idle == was_idle:
            self._jobs.looks.rested(found)
            longest, until = self._poll_interval(), None
            if found.due is not None:
                until = self._until(found.due.total_seconds())
            if self._look_again:
                # A client that enqueued just before the worker was marked idle sent no wake-up, and may
                # commit just after.
                until, self._look_again = min(LOOK_AGAIN_SECONDS, until or LOOK_AGAIN_SECONDS), False
            if self._stopping.is_set() or await self._listener.wait(min(longest, until or longest)):
                return
            if until is not None and until <= longest:
                return
            found = await self._claimer.rest(holding=bool(self._jobs.held))
            if found.due is not None and found.due.total_seconds() <= 0:
                return

    def _poll_interval(self) -> float:
        longest = (
            self._poll_seconds
            if self._listener.listening
            else min(self._poll_seconds, POLL_WITHOUT_NOTIFY_SECONDS)
        )
        return longest * random.uniform(1.0, 1.2)  # noqa: S311 - spreads load
