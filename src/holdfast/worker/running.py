"""Running: each task in an asyncio task or a thread of its own; whatever a handler does, only it ends."""

import asyncio
import contextlib
import contextvars
import functools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from holdfast.context import Stopped
from holdfast.handler import Handler
from holdfast.logs import Log, current_job, is_verbose, name_worker
from holdfast.worker.attempt import Attempts, ThreadPool
from holdfast.worker.claiming import SHARE_OF_LEASE, Demand
from holdfast.worker.executor import Executor, bind_executor
from holdfast.worker.job import Job, Stop
from holdfast.worker.metrics import Metrics
from holdfast.worker.reporting import HandlerTimeout, Reporter, ending_of
from holdfast.worker.settling import Settler
from holdfast.worker.watchdog import Watched


class Runner:
    """Holds what was claimed, runs as much of it at once as it may, and passes every end on to be settled."""

    settler: Settler
    give_back: Callable[[list[Job]], None]
    look_again: Callable[[], None]
    expect: Callable[[Sequence[Job]], object]

    def __init__(
        self,
        *,
        worker_id: str,
        handlers: Mapping[str, Handler],
        executors: Mapping[str, Executor],
        attempts: Attempts,
        threads: ThreadPool,
        concurrency: int,
        demand: Demand,
        reporter: Reporter,
        log: Log,
        metrics: Metrics,
    ) -> None:
        self.held: set[Job] = set()
        self.waiting: deque[Job] = deque()
        self.running: set[Job] = set()
        self.room = asyncio.Event()
        self.quiet = asyncio.Event()
        self.quiet.set()
        self._handlers = handlers
        self._executors = executors
        self._attempts = attempts
        self._threads = threads
        self._concurrency = concurrency
        self._demand = demand
        self._reporter = reporter
        self._log = log
        self._verbose = is_verbose(log)
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._context.run(name_worker, worker_id)
        self._closing = False
        self.ends_make_room = False

    def take(self, jobs: Sequence[Job]) -> None:
        """Hold what was claimed, and start what there is room for."""
        self.held.update(jobs)
        self.waiting.extend(jobs)
        self.expect(jobs)
        self.start_waiting()

    def start_waiting(self) -> None:
        started = 0
        while self.waiting and len(self.running) < self._concurrency and not self._closing:
            try:
                job = self.waiting.popleft()
            except IndexError:  # the heartbeat's thread gave the last one back meanwhile
                break
            self._start(job)
            started += 1
        self._demand.started(started)
        if self._demand.wanted(len(self.running), len(self.waiting)):
            self.room.set()

    def start_no_more(self) -> list[Job]:
        """What was claimed and not started; it is no longer held."""
        self._closing = True
        return [job for job in list(self.waiting) if self._withdraw(job)]

    def take_stale(self) -> list[Job]:
        """What waits for room for more than a fraction of its lease. From the heartbeat's thread."""
        now = time.monotonic()
        stale = [job for job in list(self.waiting) if now - job.claimed > SHARE_OF_LEASE * job.lease_seconds]
        return [job for job in stale if self._withdraw(job)]

    def stop(self, job: Job, why: Stop) -> None:
        """End a handler whose task is no longer ours: cancel an async one, ask others at checkpoints."""
        if job not in self.held or job.stop is not None or job.phase not in ("waiting", "running"):
            return
        job.stop = why
        self._log.warning("task_stopped", **job.name, why=why)
        if why == "lost":
            self._metrics.lost_leases += 1
        if isinstance(job.running, asyncio.Task):
            job.running.cancel()
        elif isinstance(job.running, Watched) and why == "lost":
            job.running.interrupt(Stopped)  # another worker may begin before it comes to a checkpoint
        elif job.phase == "waiting" and self._withdraw(job):
            self._drop(job)

    def job_of(self, task: "asyncio.Task[object]") -> Job | None:
        return next((job for job in list(self.running) if job.running is task), None)

    def abandon(self, job: Job) -> None:
        """Give up on a thread that blocks in C past all limits. It may end when it likes: nobody listens."""
        if job in self.running:
            self._log.error("handler_stuck", **job.name, seconds=round(job.seconds_running))
            error = HandlerTimeout("the attempt is past its limit and its thread does not react")
            self._end(job, self._reporter.raised(job, self._handlers[job.type], error))

    def settled(self, job: Job, verdict: str) -> None:
        self.held.discard(job)
        if verdict not in ("accepted", "already_done"):
            self._metrics.refused[verdict] += 1
            self._metrics.lost_leases += verdict == "lost" and job.stop is None
            self._log.warning("result_refused", **job.name, verdict=verdict)
            return
        ending = ending_of(job)
        self._metrics.finished[ending] += 1
        if self.ends_make_room or ending in ("retrying", "snoozed"):
            self.look_again()  # it may be due before the worker would look by itself
        if ending in ("failed", "dead_letter"):
            self._log.warning("task_ended", **job.name, status=ending)
        elif self._verbose:
            self._log.debug("task_ended", **job.name, status=ending)

    async def prepare(self) -> None:
        for executor in self._executors.values():
            await executor.prepare()

    async def close(self) -> None:
        self._threads.close()
        for executor in self._executors.values():
            await executor.close()

    def _start(self, job: Job) -> None:
        handler = self._handlers.get(job.type)
        if handler is not None and job.executor != handler.executor and not self._bind(job, handler):
            return
        if (handler is None or job.executor != "python") and self._cannot_run(job):
            return
        now = time.monotonic()
        if now >= job.lease_ends:  # this process stood still meanwhile
            self.stop(job, "lost")
            self.held.discard(job)
            return
        self.running.add(job)
        self.quiet.clear()
        job.started = now
        job.phase = "running"
        if self._verbose:
            self._log.debug("task_started", **job.name)
        self._launch(job, handler)

    def _bind(self, job: Job, handler: Handler) -> bool:
        """Let the declaration of the handler decide, whatever the row says. False if that is refused."""
        bound = bind_executor(job.executor, handler.executor)
        if bound is None:
            self._log.error("executor_refused", **job.name, asked=job.executor, declared=handler.executor)
            self._end_unstarted(job, self._reporter.executor_refused(job, handler))
            return False
        job.executor = bound
        return True

    def _cannot_run(self, job: Job) -> bool:
        """What this worker has no handler or no executor for ends here."""
        executor = self._executors.get(job.executor)
        if job.executor != "python" and executor is None:
            self._log.error("executor_not_available", **job.name, executor=job.executor)
            written = self._reporter.no_executor(job)
        elif job.type not in self._handlers and (executor is None or executor.needs_handler):
            self._log.error("no_handler_registered", **job.name)
            written = self._reporter.no_handler(job)
        else:
            return False
        self._end_unstarted(job, written)
        return True

    def _end_unstarted(self, job: Job, written: str) -> None:
        job.phase = "ended"
        self.settler.add(job, written)

    def _launch(self, job: Job, handler: Handler | None) -> None:
        # A context of its own: what one handler sets must not be seen by the next.
        context = self._context.copy()
        if handler is None or job.executor != "python":
            if handler is not None and job.timeout is None:
                job.timeout = handler.timeout
            job.running = self._loop.create_task(self._run_elsewhere(job, handler), context=context)
            return
        if self._attempts.needs_loop(handler):
            task = self._loop.create_task(self._run(job, handler), context=context)
            # A thread behind middleware is not stopped by cancelling who waits for it.
            job.running = task if handler.is_async else None
            return
        try:
            self._threads.submit(functools.partial(context.run, self._run_in_thread, job, handler))
        except RuntimeError as error:  # the system has no thread left to give
            self._loop.call_soon(self._end, job, self._reporter.raised(job, handler, error))

    async def _run(self, job: Job, handler: Handler) -> None:
        try:
            written = await self._attempts.run(job, handler)
        except BaseException as error:  # noqa: BLE001 - a task that never ends would be held for ever
            written = self._reporter.broken(job, error)
        self._end(job, written)

    async def _run_elsewhere(self, job: Job, handler: Handler | None) -> None:
        current_job.set(job)
        try:
            written = await self._executors[job.executor].run(job, handler)
        except BaseException as error:  # noqa: BLE001 - as above
            written = None if job.stop is not None else self._reporter.broken(job, error)
        self._end(job, written)

    def _run_in_thread(self, job: Job, handler: Handler) -> None:
        try:
            written = self._attempts.run_here(job, handler)
        except BaseException as error:  # noqa: BLE001 - as above
            written = self._reporter.broken(job, error)
        with contextlib.suppress(RuntimeError):  # the loop was closed: the worker has ended
            self._loop.call_soon_threadsafe(self._end, job, written)

    def _end(self, job: Job, written: str | None) -> None:
        if job not in self.running:
            return
        self.running.discard(job)
        job.running = None
        job.phase = "ended"
        self._metrics.handled(job.type, job.seconds_running)
        if written is not None:
            self.settler.add(job, written)
        elif job.stop is not None and job in self.held:
            self._drop(job)
        if self.waiting:
            self.start_waiting()
        elif self._demand.wanted(len(self.running), 0):
            self._demand.started(0)
            self.room.set()
        if not self.running:
            self.quiet.set()

    def _withdraw(self, job: Job) -> bool:
        """Take it out of the line and let go of it; false if it was started meanwhile."""
        try:
            self.waiting.remove(job)
        except (ValueError, IndexError):
            return False
        self.held.discard(job)
        return True

    def _drop(self, job: Job) -> None:
        """Whatever of it may still be ours goes back; the token keeps us from touching what is not."""
        self.held.discard(job)
        if job.stop != "cancelled":
            self.give_back([job])
