"""One attempt: payload to arguments, the handler's call within its limit, and what to report of its end."""

import asyncio
import contextlib
import contextvars
import functools
import json
import queue
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from holdfast.context import Context
from holdfast.handler import Handler
from holdfast.logs import Log, current_job
from holdfast.middleware import Call, Middleware
from holdfast.worker.job import Job
from holdfast.worker.job_transaction import CommitUnknown, JobTransaction
from holdfast.worker.reporting import HandlerTimeout, NotDecoded, Reporter, brief, decode
from holdfast.worker.watchdog import Guarded, Watched


class Watch(Protocol):
    """Who ends handlers that asyncio cannot end."""

    def watch(self, job: Job, limit: float | None, *, in_loop: bool = False) -> Watched: ...
    def forget(self, watched: Watched) -> None: ...


class ThreadPool:
    """As many threads as were ever needed at once, up to a limit that the runner keeps."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], None]) -> None:
        """The call must not raise. RuntimeError if the system has no thread left to give."""
        with self._lock:
            if self._idle == 0:
                threading.Thread(target=self._serve, name="holdfast-handler", daemon=True).start()
            else:
                self._idle -= 1
        self._work.put(call)

    def close(self) -> None:
        with self._lock:
            for _ in range(self._idle):
                self._work.put(None)
            self._idle = 0

    def _serve(self) -> None:
        while (call := self._work.get()) is not None:
            call()
            del call  # else it would be kept until the next one comes
            with self._lock:
                self._idle += 1


class Attempts:
    """Each is answered with its report for `finish`.

    None is answered if there is nothing to report: the handler's own transaction has recorded the end, or the
    task was taken from us.
    """

    def __init__(
        self,
        *,
        worker_id: str,
        middlewares: Sequence[Middleware],
        reporter: Reporter,
        threads: ThreadPool,
        watch: Watch,
        open_transaction: Callable[[Job], JobTransaction],
        settled: Callable[[Job, str], object],
        log: Log,
    ) -> None:
        self.tell_progress: Callable[[], None] = lambda: None
        self._worker_id = worker_id
        self._middlewares = tuple(middlewares)
        self._reporter = reporter
        self._threads = threads
        self._watch = watch
        self._open_transaction = open_transaction
        self._settled = settled
        self._log = log

    def needs_loop(self, handler: Handler) -> bool:
        """Whether to `run` it in an event loop, or to `run_here` in a thread."""
        return handler.is_async or bool(self._middlewares)

    async def run(self, job: Job, handler: Handler) -> str | None:
        current_job.set(job)
        try:
            value = await self._call(job, handler)
            written = self._reporter.returned(job, handler, value)
            if job.transaction is not None:
                job.phase = "ending"
                self._settled(job, await job.transaction.acommit(self._worker_id, written))
                return None
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends the task, not the worker
            if job.transaction is not None:
                await job.transaction.arollback()
            return self._went_wrong(job, handler, error)
        return written

    def run_here(self, job: Job, handler: Handler) -> str | None:
        current_job.set(job)
        try:
            value = self._watched(job, handler, self._bound(job, handler))
            written = self._reporter.returned(job, handler, value)
            if job.transaction is not None:
                job.phase = "ending"
                self._settled(job, job.transaction.commit(self._worker_id, written))
                return None
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends the task, not the worker
            if job.transaction is not None:
                job.transaction.rollback()
            return self._went_wrong(job, handler, error)
        return written

    async def _call(self, job: Job, handler: Handler) -> Any:
        bound = self._bound(job, handler)
        call = self._through_middleware(job, handler, bound) if self._middlewares else bound()
        limit = job.timeout or handler.timeout
        if limit is None or not handler.is_async:  # a thread is under watch by itself
            return await call
        return await self._within(job, limit, call)

    def _bound(self, job: Job, handler: Handler) -> Callable[[], Any]:
        arguments = decode(handler, job.payload)
        if handler.wants_context:
            context = Context(job, self.tell_progress, functools.partial(self._open_transaction, job))
            return functools.partial(handler.function, context, **arguments)
        return functools.partial(handler.function, **arguments)

    async def _through_middleware(self, job: Job, handler: Handler, bound: Callable[[], Any]) -> Any:
        async def in_thread() -> Any:
            return await self._in_thread(functools.partial(self._watched, job, handler, bound))

        proceed: Callable[[], Awaitable[Any]] = bound if handler.is_async else in_thread
        call = _described(job)
        for middleware in reversed(self._middlewares):
            proceed = functools.partial(middleware, call, proceed)
        return await proceed()

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """With the context of whoever waits, so that a span of a middleware is seen by its handler."""
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

        self._threads.submit(run)
        return await future

    def _watched(self, job: Job, handler: Handler, call: Callable[[], Any]) -> Any:
        watched = job.running = self._watch.watch(job, job.timeout or handler.timeout)
        try:
            return watched.run(call)
        finally:
            self._watch.forget(watched)

    async def _within(self, job: Job, limit: float, call: Awaitable[Any]) -> Any:
        """Only the limit itself becomes a HandlerTimeout, not a TimeoutError of the handler's own."""
        watched = self._watch.watch(job, limit, in_loop=True)
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                return await Guarded(call, watched)
        except TimeoutError as error:
            if scope.expired():
                raise HandlerTimeout(f"the attempt took longer than its limit of {limit:g} s") from error
            raise
        finally:
            self._watch.forget(watched)

    def _went_wrong(self, job: Job, handler: Handler, error: BaseException) -> str | None:
        if isinstance(error, CommitUnknown):
            self._log.warning("commit_unknown", **job.name, error=brief(error))
            return self._reporter.unknown_commit(job)
        if job.stop is not None:  # the task was taken from us: its end is not ours to tell
            return None
        self._log.warning("attempt_failed", **job.name, error=brief(error))
        return self._reporter.raised(job, handler, error)


def _described(job: Job) -> Call:
    try:
        metadata = {} if job.metadata is None else json.loads(job.metadata)
        return Call(job.type, job.task_id, job.attempt, json.loads(job.payload), metadata)
    except (ValueError, RecursionError) as error:  # JSON that PostgreSQL holds and Python does not
        raise NotDecoded(f"the payload of {job.type} cannot be read: {error}") from error


def _resolve(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration | GeneratorExit):  # which mean something else to who awaits
        future.set_exception(RuntimeError(f"the handler raised {type(error).__name__}"))
    else:
        future.set_exception(error)
