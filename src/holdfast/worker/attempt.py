"""One attempt: payload to arguments, the handler's call within its limit, and what to report of its end."""

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from holdfast.context import Context, Stopped
from holdfast.handler import Handler
from holdfast.middleware import Call, Middleware
from holdfast.worker.job import Job
from holdfast.worker.logs import Log
from holdfast.worker.report import HandlerTimeout, Reporter
from holdfast.worker.threads import ThreadPool
from holdfast.worker.transaction import JobTransaction


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
        limit: Callable[[float | None], AbstractContextManager[None]],
        open_transaction: Callable[[Job], JobTransaction],
        settled: Callable[[Job, str], object],
        log: Log,
    ) -> None:
        self.tell_progress: Callable[[], None] = lambda: None
        self._worker_id = worker_id
        self._middlewares = tuple(middlewares)
        self._reporter = reporter
        self._threads = threads
        self._limit = limit
        self._open_transaction = open_transaction
        self._settled = settled
        self._log = log

    def needs_loop(self, handler: Handler) -> bool:
        """Whether to `run` it in an event loop, or to `run_here` in a thread."""
        return handler.is_async or bool(self._middlewares)

    async def run(self, job: Job, handler: Handler) -> str | None:
        try:
            limit = job.timeout or handler.timeout
            call = self._call(job, handler)
            value = await (call if limit is None else _within(limit, call))
            written = self._reporter.returned(job, handler, value)
            if job.transaction is not None:
                return self._after_commit(job, await job.transaction.acommit(self._worker_id, written))
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends the task, not the worker
            if job.transaction is not None:
                await job.transaction.arollback()
            return self._went_wrong(job, handler, error)
        return written

    def run_here(self, job: Job, handler: Handler) -> str | None:
        try:
            arguments = handler.decode(job.payload)
            positional = (self._context(job),) if handler.wants_context else ()
            with self._limit(job.timeout or handler.timeout):
                value = handler.function(*positional, **arguments)
            written = self._reporter.returned(job, handler, value)
            if job.transaction is not None:
                return self._after_commit(job, job.transaction.commit(self._worker_id, written))
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler ends the task, not the worker
            if job.transaction is not None:
                job.transaction.rollback()
            return self._went_wrong(job, handler, error)
        return written

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
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def run() -> None:
            try:
                value, error = call(), None
            except BaseException as caught:  # noqa: BLE001 - handed to the coroutine that waits
                value, error = None, caught
            loop.call_soon_threadsafe(_resolve, future, value, error)

        self._threads.submit(run)
        return await future

    def _after_commit(self, job: Job, ending: str) -> str | None:
        if ending == "unknown":
            return self._reporter.unknown_commit(job)
        if ending == "refused":
            job.stop = job.stop or "lost"
        self._settled(job, "accepted" if ending == "accepted" else "lost")
        return None

    def _went_wrong(self, job: Job, handler: Handler, error: BaseException) -> str | None:
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

    def _context(self, job: Job) -> Context:
        return Context(job, self.tell_progress, functools.partial(self._open_transaction, job))


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
