"""Attempts: call the handler in the event loop or in a thread, within its limit, and write the report."""

import asyncio
import contextlib
import contextvars
import functools
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._serialization.failure import brief
from holdfast._telemetry.current_job import current_job
from holdfast._telemetry.logs import Log
from holdfast._worker.attempt import (
    AttemptEnd,
    DeadlinePassed,
    HandlerTimeout,
    Reporter,
    bind_call,
    error_in,
    through_middleware,
)
from holdfast._worker.executor import CannotStart
from holdfast._worker.handler import Handler
from holdfast._worker.jobs import Job
from holdfast._worker.transactions import CommitUnknown, JobTransaction, end_of_unknown_commit
from holdfast._worker.watchdog import InterruptibleAwaitable, WatchedHandler
from holdfast._workflows.ends import Continued, Suspended
from holdfast._workflows.run import Run
from holdfast.middleware import Middleware
from holdfast.outcome import OUTCOMES

if TYPE_CHECKING:
    from holdfast._worker.batches import RunningBatch


class WatchHandlers(Protocol):
    """Interrupts handlers that asyncio cannot end."""

    def watch(self, job: Job, limit: float | None, *, in_loop: bool = False) -> WatchedHandler: ...
    def forget(self, watched: WatchedHandler) -> None: ...


class OpenRun(Protocol):
    """Begins the run of a job at the first step of its handler."""

    def __call__(self, job: Job, attempts: "Attempts", *, is_async: bool) -> Run: ...


class ThreadPool:
    """Daemon threads for handlers that block: one that never returns does not keep the process alive.

    There are as many as were ever needed at once; the concurrency of the worker limits them.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = 0
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], None]) -> None:
        """The call must not raise. Raises RuntimeError if the system cannot start another thread."""
        with self._lock:
            if self._idle == 0:
                threading.Thread(target=self._serve, name="holdfast-handler", daemon=True).start()
            else:
                self._idle -= 1
        self._work.put(call)

    def close(self) -> None:
        """Idle threads end now, the others when their call returns."""
        with self._lock:
            self._closed = True
            for _ in range(self._idle):
                self._work.put(None)
            self._idle = 0

    def _serve(self) -> None:
        while (call := self._work.get()) is not None:
            call()
            del call  # else it would stay in memory until the next one
            with self._lock:
                if self._closed:
                    return
                self._idle += 1


class Attempts:
    """Makes attempts. Each returns its report for `finish`.

    It returns None if there is nothing to report: the handler's own transaction has recorded the outcome, or
    the task was taken from this worker.
    """

    def __init__(
        self,
        *,
        worker_id: str,
        middlewares: Sequence[Middleware],
        reporter: Reporter,
        watch: WatchHandlers,
        open_transaction: Callable[[Job], JobTransaction],
        open_run: OpenRun,
        settled: Callable[[Job, str], object],
        send_progress: Callable[[Job], None],
        log: Log,
    ) -> None:
        self._worker_id = worker_id
        self._middlewares = tuple(middlewares)
        self._reporter = reporter
        self._threads = ThreadPool()
        self._watch = watch
        self._open_transaction = open_transaction
        self._open_run = open_run
        self._settled = settled
        self._send_progress = send_progress
        self._log = log

    def needs_loop(self, handler: Handler) -> bool:
        """Whether to `run` it in an event loop, or to `run_here` in a thread."""
        return handler.is_async or bool(self._middlewares)

    def submit(self, call: Callable[[], None]) -> None:
        """Call it in a thread. It must not raise. Raises CannotStart."""
        try:
            self._threads.submit(call)
        except RuntimeError as error:  # the system cannot start another thread
            raise CannotStart("executor_failed", f"no thread could be started: {error}") from error

    def close(self) -> None:
        self._threads.close()

    async def run(self, job: Job, handler: Handler) -> str | None:
        """Raises CannotStart if no thread is free for a plain function behind middleware."""
        current_job.set(job)
        try:
            bound = self._bound(job, handler)
            limit = job.limit(handler.timeout)
            if handler.remembers_first:
                await self._open_run(job, self, is_async=handler.is_async).aload()
            if limit is None and not self._middlewares:  # most tasks: without another coroutine for each
                value = await bound()
            else:
                value = await self._call(job, handler, bound, limit)
            if job.run is not None:
                await self._end_run(job.run)
            report = self._reporter.returned(job, handler, value)
            if job.transaction is not None:
                job.phase = "ending"
                self._settled(job, await job.transaction.acommit(self._worker_id, report))
                return None
        except CannotStart:
            raise
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends the task, not the worker
            if job.transaction is not None:
                await job.transaction.arollback()
            return await self._run_went_wrong(job, handler, error)
        return report

    def run_here(self, job: Job, handler: Handler) -> str | None:
        current_job.set(job)
        try:
            value = self._watched(job, handler, self._prepared(job, handler))
            if job.run is not None:
                job.run.ended()
                if job.run.suspended is not None:
                    raise Suspended  # noqa: TRY301 - the handler has caught it
            report = self._reporter.returned(job, handler, value)
            if job.transaction is not None:
                job.phase = "ending"
                self._settled(job, job.transaction.commit(self._worker_id, report))
                return None
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends the task, not the worker
            if job.transaction is not None:
                job.transaction.rollback()
            if job.run is not None:
                error = _end_blocking(job.run, error)
            return self._went_wrong(job, handler, error)
        return report

    async def call_batch(
        self, batch: "RunningBatch", call: Callable[[], Any], *, is_async: bool, limit: float | None
    ) -> Any:
        """Call a handler for several tasks. The middleware runs once and is told about the first of them."""
        first = batch.jobs[0]

        async def in_thread() -> Any:
            return await self._handler_in_thread(functools.partial(self.call_batch_here, batch, call, limit))

        proceed = call if is_async else in_thread
        if self._middlewares:
            proceed = through_middleware(self._middlewares, first, proceed)
        if limit is None or not is_async:
            return await proceed()
        return await self._within(first, limit, proceed())

    def call_batch_here(self, batch: "RunningBatch", call: Callable[[], Any], limit: float | None) -> Any:
        watched = self._watch.watch(batch.jobs[0], limit)
        batch.interrupt = watched.interrupt
        try:
            return watched.run(call)
        finally:
            self._watch.forget(watched)

    async def _call(self, job: Job, handler: Handler, bound: Callable[[], Any], limit: float | None) -> Any:
        call = self._through_middleware(job, handler, bound) if self._middlewares else bound()
        if limit is None or not handler.is_async:  # a thread is watched by `_watched`
            return await call
        return await self._within(job, limit, call)

    def _bound(self, job: Job, handler: Handler) -> Callable[[], Any]:
        if job.is_past_deadline:
            raise DeadlinePassed(job.ends_at)
        if not handler.wants_context:
            return bind_call(job, handler, _not_given, _not_given, _not_given)
        send_progress = functools.partial(self._send_progress, job)
        open_run = functools.partial(self._open_run, job, self, is_async=handler.is_async)
        return bind_call(
            job, handler, send_progress, functools.partial(self._open_transaction, job), open_run
        )

    def _prepared(self, job: Job, handler: Handler) -> Callable[[], Any]:
        bound = self._bound(job, handler)
        if handler.remembers_first:
            self._open_run(job, self, is_async=False).load()
        return bound

    async def _end_run(self, run: Run) -> None:
        await run.aended()
        if run.suspended is not None:
            raise Suspended  # the handler has caught it

    async def _run_went_wrong(self, job: Job, handler: Handler, error: BaseException) -> str | None:
        if job.run is not None and job.stop is None:
            try:
                await self._end_run(job.run)
            except BaseException as problem:  # noqa: BLE001 - it takes the place of the error
                error = problem if job.run.suspended is None or job.stop is not None else error
        return self._went_wrong(job, handler, error)

    def in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return self._in_thread(call)

    def limited(self, job: Job, seconds: float, call: Callable[[], Any]) -> Any:
        """Call it in this thread, and raise TimeoutError in it when the time is over."""
        watched = self._watch.watch(job, seconds)
        try:
            return watched.run(call)
        except HandlerTimeout as error:
            if time.monotonic() < watched.limit_ends:
                raise  # the limit of the handler itself
            raise TimeoutError(f"the step took longer than its limit of {seconds:g} s") from error
        finally:
            self._watch.forget(watched)

    async def _through_middleware(self, job: Job, handler: Handler, bound: Callable[[], Any]) -> Any:
        async def in_thread() -> Any:
            return await self._handler_in_thread(functools.partial(self._watched, job, handler, bound))

        return await through_middleware(self._middlewares, job, bound if handler.is_async else in_thread)()

    async def _handler_in_thread(self, call: Callable[[], Any]) -> Any:
        return await self._begun_in_thread(call, self.submit)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await self._begun_in_thread(call, self._threads.submit)

    async def _begun_in_thread(
        self, call: Callable[[], Any], submit: Callable[[Callable[[], None]], None]
    ) -> Any:
        """With the context of the caller, so that the handler sees the span of a middleware."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def run() -> None:
            value, error = None, None
            try:
                value = context.run(call)
            except BaseException as caught:  # noqa: BLE001 - handed to the coroutine that waits
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop was closed: the worker has ended
                loop.call_soon_threadsafe(_resolve, future, value, error)
            del error  # it holds this frame, which would hold it

        submit(run)
        return await future

    def _watched(self, job: Job, handler: Handler, call: Callable[[], Any]) -> Any:
        watched = job.running = self._watch.watch(job, job.limit(handler.timeout))
        try:
            return watched.run(call)
        finally:
            self._watch.forget(watched)

    async def _within(self, job: Job, limit: float, call: Awaitable[Any]) -> Any:
        """Raise HandlerTimeout when the limit is passed; a TimeoutError of the handler itself stays one."""
        watched = self._watch.watch(job, limit, in_loop=True)
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                return await InterruptibleAwaitable(call, watched)
        except TimeoutError as error:
            if scope.expired():
                raise HandlerTimeout(f"the attempt took longer than its limit of {limit:g} s") from error
            raise
        finally:
            self._watch.forget(watched)

    def _went_wrong(self, job: Job, handler: Handler, error: BaseException) -> str | None:
        if isinstance(error, CommitUnknown):
            self._log.warning("commit_unknown", **job.log_fields, error=brief(error))
            return self._reporter.write(job, end_of_unknown_commit(job.attempt))
        if job.stop is not None:  # the task was taken from this worker: there is nothing to report
            return None
        if job.run is not None and job.run.suspended is not None:
            return self._reporter.write(job, AttemptEnd("suspend"))
        error = error_in(job.calls, error)
        if not isinstance(error, (*OUTCOMES, Continued)):
            self._log.warning("attempt_failed", **job.log_fields, error=brief(error))
        return self._reporter.raised(job, handler, error)


def _end_blocking(run: Run, error: BaseException) -> BaseException:
    try:
        run.ended()
    except BaseException as problem:  # noqa: BLE001 - it takes the place of the error
        return error if run.suspended is not None else problem
    return error


def _not_given() -> None:
    """For a handler without a context, which can reach neither its progress nor a transaction."""


def _resolve(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration | GeneratorExit):  # which have another meaning in a coroutine
        future.set_exception(RuntimeError(f"the handler raised {type(error).__name__}"))
    else:
        future.set_exception(error)
