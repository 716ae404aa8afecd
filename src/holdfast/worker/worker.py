"""A worker: its loops, from start to stop."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from holdfast import __version__
from holdfast.engine import fleet
from holdfast.engine import lease as statements
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.handler import Handler
from holdfast.middleware import Middleware
from holdfast.settings import Settings
from holdfast.worker.beat import Beater
from holdfast.worker.claim import Claimer, Demand
from holdfast.worker.clock import DatabaseClock
from holdfast.worker.job import Job
from holdfast.worker.link import Link
from holdfast.worker.listen import Listener
from holdfast.worker.logs import Log, worker_log
from holdfast.worker.metrics import Metrics
from holdfast.worker.report import Reporter
from holdfast.worker.run import Runner
from holdfast.worker.settle import Settler
from holdfast.worker.watchdog import Watchdog

UNWIND_SECONDS = 2.0
LAST_WORDS_SECONDS = 5.0


class Registered(Protocol):
    """What a worker needs of an application."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...
    @property
    def middlewares(self) -> Sequence[Middleware]: ...


def new_worker_id(name: str | None) -> str:
    """New at every start: a process that died must not look alive because another has its name."""
    return f"{name or socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


class Worker:
    """Claims, runs and settles until it is asked to stop; then ends what it holds and gives back the rest."""

    def __init__(
        self, app: Registered, url: str, settings: Settings, *, metrics: Metrics | None = None
    ) -> None:
        self.worker_id = new_worker_id(settings.worker_id)
        self.metrics = metrics or Metrics()
        self.ready = asyncio.Event()
        self._settings = settings
        self._url = url
        self._log: Log = worker_log(self.worker_id)
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        self._signals: list[int] = []
        self._chores: set[asyncio.Task[None]] = set()
        self._build(app)

    def _build(self, app: Registered) -> None:
        settings, loop = self._settings, asyncio.get_running_loop()
        clock = DatabaseClock()
        self._links = {name: Link(self._url, self._log, name) for name in ("claim", "settle", "listen")}
        self._demand = Demand(settings.worker_concurrency, settings.lease)
        self._watchdog = Watchdog(loop, self._is_overdue)
        self._runner = Runner(
            worker_id=self.worker_id,
            url=self._url,
            handlers=app.handlers,
            middlewares=app.middlewares,
            concurrency=settings.worker_concurrency,
            demand=self._demand,
            reporter=Reporter(clock),
            log=self._log,
            metrics=self.metrics,
            watchdog=self._watchdog,
        )
        self._settler = Settler(self._links["settle"], self.worker_id, self._log, self._runner.settled)
        self._runner.settler = self._settler
        self._claimer = Claimer(self._links["claim"], self.worker_id, settings, clock)
        self._listener = Listener(self._links["listen"], self._log)
        self._beater = Beater(
            url=self._url,
            worker_id=self.worker_id,
            interval=settings.heartbeat,
            lease=settings.lease,
            held=lambda: list(self._runner.held.values()),
            stop=self._runner.stop,
            loop=loop,
            clock=clock,
            log=self._log,
        )
        self._runner.on_progress(self._beater.tell_progress)
        self._runner.give_back = self._give_back_soon

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Ask once to end in peace, twice to end at once."""
        self._signals.append(signal_number)
        if self._stopping.is_set():
            self._at_once.set()
        self._stopping.set()

    async def run(self) -> int:
        """Until stopped. Answers the exit code: 0 after an orderly end, 128 + signal after a second one."""
        await self._register()
        self._beater.start()
        self._watchdog.start()
        loops = [
            asyncio.create_task(self._settler.run(), name="settle"),
            asyncio.create_task(self._listener.run(), name="listen"),
            asyncio.create_task(self._claim_until_stopped(), name="claim"),
        ]
        self._log.info("worker_started", **self._subscriptions())
        self.ready.set()
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([stopping, *loops], return_when=asyncio.FIRST_COMPLETED)
            while not self._stopping.is_set():  # the listener ends by itself where there is nothing to hear
                _raise_failure(loops)
                await asyncio.wait(
                    [stopping, *(t for t in loops if not t.done())], return_when=asyncio.FIRST_COMPLETED
                )
            await self._wind_down(loops[2])
        finally:
            await self._end([stopping, *loops])
        return 128 + self._signals[-1] if self._at_once.is_set() else 0

    async def _register(self) -> None:
        link = self._links["claim"]
        while not self._stopping.is_set():
            try:
                await link.run(self._registration)
            except DatabaseUnavailable as error:
                await link.pause(error)
            else:
                return

    def _registration(self) -> Any:
        settings = self._settings
        return fleet.register_worker(
            self.worker_id,
            socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            queues=list(settings.worker_queues) or None,
            type_prefixes=list(settings.worker_type_prefixes) or None,
            concurrency=settings.worker_concurrency,
        )

    def _subscriptions(self) -> dict[str, Any]:
        settings = self._settings
        queues = settings.worker_queues or (() if settings.worker_type_prefixes else ("default",))
        return {
            "queues": queues,
            "prefixes": settings.worker_type_prefixes,
            "concurrency": settings.worker_concurrency,
        }

    async def _claim_until_stopped(self) -> None:
        idle = False
        while not self._stopping.is_set():
            wanted = min(10_000, self._demand.wanted(self._runner.running, len(self._runner.waiting)))
            if wanted == 0:
                self._runner.room.clear()
                await self._until_room()
                continue
            self._listener.woken.clear()
            try:
                claimed = await self._claim(wanted)
                if len(claimed) == wanted:
                    if idle:
                        await self._claimer.mark_idle(idle=False)
                    idle = False
                elif not idle and self._listener.hears:
                    # Said first, looked again then: what was enqueued in between is found by the look.
                    await self._claimer.mark_idle(idle=True)
                    idle = True
                else:
                    await self._rest()
            except DatabaseUnavailable as error:
                idle = False
                await self._links["claim"].pause(error)
            except HoldfastError as error:
                self._log.error("claim_refused", error=str(error))
                await asyncio.sleep(self._settings.poll_interval.total_seconds())

    async def _claim(self, wanted: int) -> Sequence[Job]:
        jobs = await self._claimer.claim(wanted)
        self.metrics.claims += 1
        self.metrics.claimed += len(jobs)
        if jobs:
            self._runner.take(jobs)
        return jobs

    async def _until_room(self) -> None:
        room = asyncio.create_task(self._runner.room.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([room, stopping], return_when=asyncio.FIRST_COMPLETED)
        room.cancel()
        stopping.cancel()

    async def _rest(self) -> None:
        """Until woken, until the next task is due, or until it is time to look anyway."""
        longest = self._settings.poll_interval.total_seconds() * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
        due = await self._claimer.seconds_until_due()
        if due is not None:
            longest = min(longest, due + 0.001) if due > 0 else min(longest, 0.05)
        waiting = asyncio.create_task(self._listener.wait(longest))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        stopping.cancel()

    async def _wind_down(self, claiming: asyncio.Task[None]) -> None:
        self._log.info("worker_stopping", running=self._runner.running)
        await asyncio.wait([claiming])
        await self._give_back(list(self._runner.waiting))
        self._runner.waiting.clear()
        await self._wait_for_handlers()
        self._stop_handlers()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(UNWIND_SECONDS):
                await self._runner.quiet.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._settler.emptied()
        await self._give_back(list(self._runner.held.values()))

    async def _wait_for_handlers(self) -> None:
        quiet = asyncio.create_task(self._runner.quiet.wait())
        at_once = asyncio.create_task(self._at_once.wait())
        await asyncio.wait(
            [quiet, at_once],
            timeout=self._settings.grace.total_seconds(),
            return_when=asyncio.FIRST_COMPLETED,
        )
        quiet.cancel()
        at_once.cancel()

    def _stop_handlers(self) -> None:
        for job in list(self._runner.held.values()):
            if job.started is not None and job.running is not None:
                self._runner.stop(job.task_id, job.token, "shutdown")

    def _give_back_soon(self, jobs: list[Job]) -> None:
        giving = asyncio.create_task(self._give_back(jobs))
        self._chores.add(giving)
        giving.add_done_callback(self._chores.discard)

    async def _give_back(self, jobs: list[Job]) -> None:
        """Unfinished, with the attempt; what cannot be given back now goes back when its lease ends."""
        if not jobs:
            return
        batch = json.dumps([{"task_id": job.task_id, "token": job.token} for job in jobs])
        with contextlib.suppress(HoldfastError):
            await self._links["settle"].run(lambda: statements.settle_work("release", self.worker_id, batch))
        for job in jobs:
            self._runner.held.pop(job.task_id, None)

    async def _end(self, loops: list[asyncio.Task[Any]]) -> None:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await asyncio.to_thread(self._beater.close)
        self._watchdog.close()
        self._runner.close()
        with contextlib.suppress(HoldfastError):
            await self._links["claim"].run(lambda: fleet.retire_worker(self.worker_id))
        for link in self._links.values():
            await link.close()
        self._log.info("worker_stopped")

    def _is_overdue(self, task: asyncio.Task[object]) -> bool:
        """Whether a handler that blocks the loop is past its limit. Asked by the watchdog's thread."""
        for job in list(self._runner.held.values()):
            if job.running is task:
                limit = self._runner.limit_of(job)
                return limit is not None and job.seconds_running > limit
        return False


def _raise_failure(loops: list[asyncio.Task[None]]) -> None:
    for loop in loops:
        if loop.done() and not loop.cancelled() and loop.exception() is not None:
            loop.result()
