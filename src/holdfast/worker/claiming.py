"""Claiming: one claim after another while there is room and work; else waiting for either."""

import asyncio
import json
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.connections.listener import Listener
from holdfast.connections.worker_connection import WorkerConnection
from holdfast.engine import Statement, leases, workers
from holdfast.engine.leases import NextDue
from holdfast.errors import DatabaseUnavailable, HoldfastError, TryAgain
from holdfast.logs import Log
from holdfast.settings import Settings
from holdfast.worker.job import DatabaseClock, Job, written
from holdfast.worker.metrics import Metrics

if TYPE_CHECKING:
    from holdfast.worker.running import Runner

MAX_AT_ONCE = 10_000
BUSY_SECONDS = 0.05
HOLD_SECONDS = 0.25
REPEAT_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 0.2
CURSOR_SECONDS = 1.0
PREFETCH_SECONDS = 0.05
MAX_PREFETCHED = 500
FORGET_SECONDS = 1.0
SHARE_OF_LEASE = 0.1


class Demand:
    """How many tasks to hold in advance: as many as are started in a twentieth of a second.

    Few enough that each starts within a fraction of its lease, and that a crash strands little.
    """

    def __init__(self, concurrency: int, lease: timedelta) -> None:
        self._concurrency = concurrency
        self._ahead = min(PREFETCH_SECONDS, SHARE_OF_LEASE * lease.total_seconds())
        self._per_second = 0.0
        self._since = time.monotonic()
        self._started = 0

    def wanted(self, running: int, waiting: int) -> int:
        """Nothing while half of what is held in advance is left: claims go in batches."""
        if time.monotonic() - self._since > FORGET_SECONDS:
            self.started(0)
        prefetch = min(MAX_PREFETCHED, int(self._per_second * self._ahead))
        if waiting > prefetch // 2:
            return 0
        return max(0, self._concurrency - running) + prefetch - waiting

    def started(self, count: int) -> None:
        self._started += count
        elapsed = time.monotonic() - self._since
        if elapsed >= PREFETCH_SECONDS:
            before = self._per_second if elapsed < FORGET_SECONDS else 0.0
            self._per_second = (before + self._started / elapsed) / 2
            self._since += elapsed
            self._started = 0


class Cursor:
    """Where the last claim ended in each lane, so that the next need not walk over what it left behind."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[str, str]] = {}
        self._since = 0.0

    def current(self) -> str | None:
        """Dropped after a second: what was put in behind it is not seen before."""
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
            self._ends[str(lane_id)] = {"run_at": written(last.run_at), "task_id": last.task_id}


class Claimer:
    """The statements of claiming, on a connection of their own."""

    def __init__(
        self,
        link: WorkerConnection,
        worker_id: str,
        settings: Settings,
        clock: DatabaseClock,
        metrics: Metrics,
    ) -> None:
        self.link = link
        self._worker_id = worker_id
        self._queues = list(settings.worker_queues) or None
        self._prefixes = list(settings.worker_type_prefixes) or None
        self._lease = settings.lease
        self._clock = clock
        self._metrics = metrics
        self._cursor = Cursor()

    async def claim(self, count: int) -> list[Job]:
        """At most so many tasks; fewer only if no more are due."""
        asked = time.monotonic()
        claimed = await self.link.run(
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
            clock = claimed[0].clock
            self._clock.heard(clock)
            self._metrics.claimed += len(jobs)
            for job in jobs:
                self._metrics.queue_delay.add(clock - job.run_at)
        self._cursor.advance(jobs, short=len(jobs) < count)
        return jobs

    async def mark_idle(self, *, idle: bool) -> bool:
        """Answers whether the worker is registered."""
        return await self.link.run(lambda: workers.mark_idle(self._worker_id, idle))

    async def next_due(self) -> NextDue:
        """How long until a claim may find something."""
        return await self.link.run(lambda: leases.next_due(self._queues, self._prefixes))


class ClaimLoop:
    """Until stopped. What it is told to hold on by is asked before each claim."""

    def __init__(
        self,
        claimer: Claimer,
        *,
        demand: Demand,
        runner: "Runner",
        listener: Listener,
        settings: Settings,
        stopping: asyncio.Event,
        must_hold: Callable[[], bool],
        register: Callable[[], Statement[None]],
        log: Log,
    ) -> None:
        self._claimer = claimer
        self._demand = demand
        self._runner = runner
        self._listener = listener
        self._poll_seconds = settings.poll_interval.total_seconds()
        self._stopping = stopping
        self._must_hold = must_hold
        self._register = register
        self._log = log
        self._idle = False
        self._said_at = 0.0
        self._look_again = False
        self._in_vain = 0

    def say_again(self) -> None:
        """Whoever registers is not idle until it says so."""
        self._idle = False
        self._listener.woken.set()

    async def run(self) -> None:
        while not self._stopping.is_set():
            if self._must_hold():
                await self._hold(HOLD_SECONDS)
                continue
            wanted = self._demand.wanted(len(self._runner.running), len(self._runner.waiting))
            if wanted == 0:
                self._runner.room.clear()
                await self._runner.room.wait()
                continue
            try:
                await self._claim(min(MAX_AT_ONCE, wanted))
            except (DatabaseUnavailable, TryAgain) as error:
                self._idle = False
                await self._claimer.link.pause(error)
            except HoldfastError as error:
                self._log.error("claim_refused", error=str(error))
                await self._hold(self._poll_seconds)

    async def _claim(self, wanted: int) -> None:
        self._listener.woken.clear()
        jobs = await self._claimer.claim(wanted)
        if jobs:
            self._in_vain = 0
            self._runner.take(jobs)
        if len(jobs) == wanted:
            if self._idle:
                await self._say_idle(idle=False)
        elif not self._said_idle_lately and self._listener.hears:
            # Said first, looked again then: what was enqueued in between is found by the look.
            await self._say_idle(idle=True)
        else:
            await self._rest()

    @property
    def _said_idle_lately(self) -> bool:
        return self._idle and time.monotonic() - self._said_at < REPEAT_SECONDS

    async def _say_idle(self, *, idle: bool) -> None:
        """Where somebody took us out of the registry, nobody would wake us, or see us at work."""
        if not await self._claimer.mark_idle(idle=idle):
            await self._claimer.link.run(self._register)
            await self._claimer.mark_idle(idle=idle)
        self._idle, self._said_at = idle, time.monotonic()
        self._look_again = idle

    def _until(self, due: float) -> float:
        """What is due and was not claimed somebody has locked: for a moment, or for as long as they like."""
        if due > 0:
            self._in_vain = 0
            return due + 0.001
        self._in_vain += 1
        return BUSY_SECONDS * float(2 ** min(10, self._in_vain - 1))

    async def _hold(self, seconds: float) -> None:
        self._listener.woken.clear()
        await self._listener.wait(seconds)

    async def _rest(self) -> None:
        """Until woken, until the next task is due, or until it is time to look anyway."""
        longest = self._poll_seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
        found = await self._claimer.next_due()
        self._runner.ends_make_room = found.held
        if found.due is not None:
            longest = min(longest, self._until(found.due.total_seconds()))
        if self._look_again:
            # Who enqueued just before we said that we are idle told nobody, and may commit just after.
            longest, self._look_again = min(longest, LOOK_AGAIN_SECONDS), False
        if not self._stopping.is_set():
            await self._listener.wait(longest)
