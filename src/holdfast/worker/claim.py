"""Claiming: one claim after another while there is room and work; else waiting for either."""

import asyncio
import random
import time
from collections.abc import Callable

from holdfast.engine import Statement, fleet
from holdfast.engine import lease as statements
from holdfast.errors import DatabaseUnavailable, HoldfastError, TryAgain
from holdfast.model import NextDue
from holdfast.settings import Settings
from holdfast.worker.clock import DatabaseClock
from holdfast.worker.demand import Cursor, Demand
from holdfast.worker.job import Job
from holdfast.worker.link import Link
from holdfast.worker.listen import Listener
from holdfast.worker.logs import Log
from holdfast.worker.metrics import Metrics
from holdfast.worker.run import Runner

MAX_AT_ONCE = 10_000
BUSY_SECONDS = 0.05
HOLD_SECONDS = 0.25
REPEAT_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 0.2


class Claimer:
    """The statements of claiming, on a connection of their own."""

    def __init__(
        self, link: Link, worker_id: str, settings: Settings, clock: DatabaseClock, metrics: Metrics
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
        rows = await self.link.run(
            lambda: statements.claim_work(
                self._worker_id,
                count,
                queues=self._queues,
                type_prefixes=self._prefixes,
                lease=self._lease,
                after=self._cursor.current(),
            )
        )
        jobs = [Job(row, asked) for row in rows]
        self._metrics.sent("claim", len(jobs))
        if jobs:
            clock = rows[0][-1]
            self._clock.heard(clock)
            self._metrics.claimed += len(jobs)
            for job in jobs:
                self._metrics.queue_delay.add(clock - job.run_at)
        self._cursor.advance(jobs, short=len(jobs) < count)
        return jobs

    async def mark_idle(self, *, idle: bool) -> bool:
        """Answers whether the worker is registered."""
        return await self.link.run(lambda: fleet.mark_idle(self._worker_id, idle))

    async def next_due(self) -> NextDue:
        """How long until a claim may find something."""
        return await self.link.run(lambda: statements.next_due(self._queues, self._prefixes))


class ClaimLoop:
    """Until stopped. What it is told to hold on by is asked before each claim."""

    def __init__(
        self,
        claimer: Claimer,
        *,
        demand: Demand,
        runner: Runner,
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
