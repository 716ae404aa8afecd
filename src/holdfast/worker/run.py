"""Running: each task in an asyncio task or a thread of its own; whatever a handler does, only it ends."""

import asyncio
import functools
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.context import Context, Stopped
from holdfast.handler import Handler
from holdfast.middleware import Call, Middleware
from holdfast.worker.claim import Demand
from holdfast.worker.job import Job, Stop
from holdfast.worker.logs import Log
from holdfast.worker.metrics import Metrics
from holdfast.worker.report import HandlerTimeout, Reporter
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
        self.tell_progress: Callable[[], None] = lambda: None
        self.give_back: Callable[[list[Job]], None]
        self._worker_id = worker_id
        self._url = url
        self._handlers = handlers
        self._middlewares = tuple(middlewares)
        self._concurrency = concurrency
        self._demand = demand
        self._reporter = reporter
        self._log = log
        self._metrics = metrics
        self._watchdog = watchdog
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPool()
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
        if handler.is_async or self._middlewares:
            job.running = self._loop.create_task(self._run(job, handler))
        else:
            self._threads.submit(functools.partial(self._run_in_thread, job, handler))

    async def _run(self, job: Job, handler: Handler) -> None:
        written: str | None
        try:
            limit = job.timeout or handler.timeout
            call = self._call(job, handler)
            if limit is None:
                value = await call
            else:
                value = await _within(limit, call)
            written = self._reporter.returned(job, handler, value)
            if job.transaction is not None:
                written = await self._commit(job, written)
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends the task, not the worker
            if job.transaction is not None:
                await job.transaction.arollback()
            written = self._went_wrong(job, handler, error)
        self._end(job, written)

    def _call(self, job: Job, handler: Handler) -> Any:
        if not self._middlewares:
            arguments = handler.decode(job.payload)
            if handler.wants_context:
                return handler.function(self._context(job), **arguments)
            return handler.function(**arguments)
        return self._through_middleware(job, handler)

    async def _through_middleware(self, job: Job, handler: Handler) -> Any:
        arguments = handler.decode(job.payload)
        positional = (self._context(job),) if handler.wants_context else ()

        async def innermost() -> Any:
            if handler.is_async:
                return await handler.function(*positional, **arguments)
            return await self._in_thread(functools.partial(handler.function, *positional, **arguments))

        proceed = innermost
        metadata = {} if job.metadata is None else json.loads(job.metadata)
        call = Call(job.type, job.task_id, job.attempt, json.loads(job.payload), metadata)
        for middleware in reversed(self._middlewares):
            proceed = functools.partial(middleware, call, proceed)
        return await proceed()

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()

        def run() -> None:
            try:
                value, error = call(), None
            except BaseException as caught:  # noqa: BLE001 - handed to the coroutine that waits
                value, error = None, caught
            self._loop.call_soon_threadsafe(_resolve, future, value, error)

        self._threads.submit(run)
        return await future

    def _run_in_thread(self, job: Job, handler: Handler) -> None:
        written: str | None
        try:
            arguments = handler.decode(job.payload)
            positional = (self._context(job),) if handler.wants_context else ()
            with self._watchdog.limit(job.timeout or handler.timeout):
                value = handler.function(*positional, **arguments)
            written = self._reporter.returned(job, handler, value)
            if job.transaction is not None:
                written = self._after_commit(job, job.transaction.commit(self._worker_id, written))
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends the task, not the worker
            if job.transaction is not None:
                job.transaction.rollback()
            written = self._went_wrong(job, handler, error)
        self._loop.call_soon_threadsafe(self._end, job, written)

    async def _commit(self, job: Job, written: str) -> str | None:
        return self._after_commit(job, await job.transaction.acommit(self._worker_id, written))

    def _after_commit(self, job: Job, ending: str) -> str | None:
        if ending == "unknown":
            return self._reporter.unknown_commit(job)
        if ending == "refused":
            job.stop = job.stop or "lost"
        self._loop.call_soon_threadsafe(self.settled, job, "accepted" if ending == "accepted" else "lost")
        return None

    def _went_wrong(self, job: Job, handler: Handler, error: BaseException) -> str | None:
        """What to report, or nothing when the task was taken from us and its end is not ours to tell."""
        if job.stop is not None and isinstance(error, asyncio.CancelledError | Stopped):
            return None
        self._log.warning(
            "attempt_failed",
            task_id=job.task_id,
            type=job.type,
            attempt=job.attempt,
            error=f"{type(error).__name__}",
        )
        return self._reporter.raised(job, handler, error)

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

    def _context(self, job: Job) -> Context:
        return Context(job, self.tell_progress, functools.partial(JobTransaction, self._url, job))


async def _within(limit: float, call: Awaitable[Any]) -> Any:
    """Only the limit itself becomes a HandlerTimeout, not a TimeoutError of the handler's own."""
    scope = asyncio.timeout(limit)
    try:
        async with scope:
            return await call
    except TimeoutError as error:
        if scope.expired():
            raise HandlerTimeout(f"the attempt took longer than its limit of {limit:g} s") from error
        raise


def _resolve(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
