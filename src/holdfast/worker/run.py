"""Running: each task in an asyncio task or a thread of its own; whatever a handler does, only it ends."""

import asyncio
import functools
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from holdfast.handler import Handler
from holdfast.middleware import Middleware
from holdfast.worker.attempt import Attempts
from holdfast.worker.claim import Demand
from holdfast.worker.job import Job, Stop
from holdfast.worker.logs import Log
from holdfast.worker.metrics import Metrics
from holdfast.worker.report import Reporter
from holdfast.worker.settle import Settler
from holdfast.worker.threads import ThreadPool
from holdfast.worker.transaction import JobTransaction
from holdfast.worker.watchdog import Watchdog


class Runner:
    """Holds what was claimed, runs as much of it at once as it may, and passes every end on to be settled."""

    def __init__(
        self,
        *,
        worker_id: str,
        url: str,
        handlers: Mapping[str, Handler],
        middlewares: Sequence[Middleware],
        concurrency: int,
        demand: Demand,
        reporter: Reporter,
        log: Log,
        metrics: Metrics,
        watchdog: Watchdog,
    ) -> None:
        self.held: dict[str, Job] = {}
        self.waiting: deque[Job] = deque()
        self.running = 0
        self.room = asyncio.Event()
        self.quiet = asyncio.Event()
        self.quiet.set()
        self.give_back: Callable[[list[Job]], None]
        self._handlers = handlers
        self._concurrency = concurrency
        self._demand = demand
        self._reporter = reporter
        self._log = log
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPool()
        self._attempts = Attempts(
            worker_id=worker_id,
            middlewares=middlewares,
            reporter=reporter,
            threads=self._threads,
            limit=watchdog.limit,
            open_transaction=functools.partial(JobTransaction, url),
            settled=lambda job, verdict: self._loop.call_soon_threadsafe(self.settled, job, verdict),
            log=log,
        )
        self._starting = False
        self.settler: Settler

    def take(self, jobs: Iterable[Job]) -> None:
        """Hold what was claimed, and start what there is room for."""
        for job in jobs:
            self.held[job.task_id] = job
            self.waiting.append(job)
        self.start_waiting()

    def start_waiting(self) -> None:
        # A handler that ends at once comes back here: the outer call goes on instead of a deeper one.
        if self._starting:
            return
        self._starting = True
        started = 0
        while self.waiting and self.running < self._concurrency:
            try:
                job = self.waiting.popleft()
            except IndexError:  # the heartbeat's thread gave the last one back meanwhile
                break
            self._start(job)
            started += 1
        self._starting = False
        self._demand.started(started)
        if self._demand.wanted(self.running, len(self.waiting)):
            self.room.set()

    def stop(self, task_id: str, token: int, why: Stop) -> None:
        """End a handler whose task is no longer ours: cancel an async one, ask others at checkpoints."""
        job = self.held.get(task_id)
        if job is None or job.token != token or job.stop is not None:
            return
        job.stop = why
        self._log.warning("task_stopped", task_id=task_id, type=job.type, attempt=job.attempt, why=why)
        if why == "lost":
            self._metrics.lost_leases += 1
        if isinstance(job.running, asyncio.Task):
            job.running.cancel()
        elif job.started is None and job in self.waiting:
            self.waiting.remove(job)
            self._drop(job)

    def settled(self, job: Job, verdict: str) -> None:
        self.held.pop(job.task_id, None)
        self._metrics.settled(verdict)
        if verdict not in ("accepted", "already_done"):
            self._log.warning(
                "result_refused", task_id=job.task_id, type=job.type, attempt=job.attempt, verdict=verdict
            )

    def limit_of(self, job: Job) -> float | None:
        handler = self._handlers.get(job.type)
        return job.timeout or (None if handler is None else handler.timeout)

    def on_progress(self, tell: Callable[[], None]) -> None:
        self._attempts.tell_progress = tell

    def close(self) -> None:
        self._threads.close()

    def _start(self, job: Job) -> None:
        handler = self._handlers.get(job.type)
        if handler is None:
            self._log.error("no_handler_registered", task_id=job.task_id, type=job.type, attempt=job.attempt)
            self.settler.add(job, self._reporter.no_handler(job))
            return
        self.running += 1
        self.quiet.clear()
        job.started = time.monotonic()
        if self._attempts.needs_loop(handler):
            job.running = self._loop.create_task(self._run(job, handler))
        else:
            self._threads.submit(functools.partial(self._run_in_thread, job, handler))

    async def _run(self, job: Job, handler: Handler) -> None:
        self._end(job, await self._attempts.run(job, handler))

    def _run_in_thread(self, job: Job, handler: Handler) -> None:
        self._loop.call_soon_threadsafe(self._end, job, self._attempts.run_here(job, handler))

    def _end(self, job: Job, written: str | None) -> None:
        self.running -= 1
        job.running = None
        self._metrics.handled(job.type, job.seconds_running)
        if written is not None:
            self.settler.add(job, written)
        elif job.stop is not None:
            self._drop(job)
        if self.waiting:
            self.start_waiting()
        elif self._demand.wanted(self.running, 0):
            self._demand.started(0)
            self.room.set()
        if self.running == 0:
            self.quiet.set()

    def _drop(self, job: Job) -> None:
        """What was deleted, or is given up at shutdown, goes back; anything else is no longer ours."""
        if job.stop in ("deleted", "shutdown"):
            self.give_back([job])
        else:
            self.held.pop(job.task_id, None)
