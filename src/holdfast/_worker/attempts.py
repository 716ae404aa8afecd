"""Attempts of this worker: in its event loop or in its threads, with watched limits."""

import asyncio
import contextlib
import contextvars
import functools
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from holdfast._telemetry.current_job import current_job
from holdfast._telemetry.logs import Log
from holdfast._worker.attempt import Attempt, awaiting, bind_call, blocking, making, through_middleware
from holdfast._worker.executor import CannotStart
from holdfast._worker.handler import Handler
from holdfast._worker.jobs import Job
from holdfast._worker.recording import LoopJournal, StepRecorder, ThreadJournal
from holdfast._worker.report import DeadlinePassed, HandlerTimeout, Reporter
from holdfast._worker.transactions import JobTransaction, RecordedTransaction
from holdfast._worker.watchdog import InterruptibleAwaitable, WatchedHandler
from holdfast._workflows.drivers import Awaiting, Blocking, Driver
from holdfast._workflows.journal import Host
from holdfast._workflows.memory import RunState
from holdfast._workflows.run import Run
from holdfast.middleware import Middleware

R = TypeVar("R")


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
    """Makes attempts in this worker."""

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
        self.worker_id = worker_id
        self.middlewares = tuple(middlewares)
        self.reporter = reporter
        self.log = log
        self.open_transaction = open_transaction
        self.open_run = open_run
        self.settled = settled
        self.send_progress = send_progress
        self._watch = watch
        self._threads = ThreadPool()
        self._in_loop, self._here = _InLoop(self), _Here(self)

    def needs_loop(self, handler: Handler) -> bool:
        """Whether to `run` it in an event loop, or to `run_here` in a thread."""
        return handler.is_async or bool(self.middlewares)

    def run(self, attempt: Attempt[R]) -> Coroutine[Any, Any, R | None]:
        """In the event loop. Raises CannotStart if a plain function behind middleware gets no thread."""
        work = making(attempt, self._in_loop)
        return awaiting(work)

    def run_here(self, attempt: Attempt[R]) -> R | None:
        """Of a plain function, in this thread."""
        work = making(attempt, self._here)
        return blocking(work)

    def submit(self, call: Callable[[], None]) -> None:
        """Call it in a thread. It must not raise. Raises CannotStart."""
        try:
            self._threads.submit(call)
        except RuntimeError as error:  # the system cannot start another thread
            raise CannotStart("executor_failed", f"no thread could be started: {error}") from error

    def close(self) -> None:
        self._threads.close()

    def in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return _in_thread(call, self._threads.submit)

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

    def watched(self, attempt: Attempt[Any], call: Callable[[], Any]) -> Any:
        """Call it in this thread, within the limit of the attempt."""
        watched = self._watch.watch(attempt.task, attempt.limit())
        attempt.begins(watched)
        try:
            return watched.run(call)
        finally:
            self._watch.forget(watched)

    async def within(self, job: Job, limit: float, call: Awaitable[Any]) -> Any:
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


class RunOpener:
    """Begins the run of a job at the first step of its handler."""

    def __init__(
        self,
        url: str,
        worker_id: str,
        recorder: StepRecorder,
        loop: asyncio.AbstractEventLoop,
        settings: Callable[[], Any],
    ) -> None:
        self._settings = settings
        self._url = url
        self._worker_id = worker_id
        self._recorder = recorder
        self._loop = loop

    def __call__(self, job: Job, attempts: "Attempts", *, is_async: bool) -> Run:
        if job.run is not None:
            return job.run
        transaction = functools.partial(RecordedTransaction, self._url, self._worker_id, job)
        host = JobHost(job, attempts, transaction)
        state = RunState(job)
        if is_async:
            driver: Driver = Awaiting(state, LoopJournal(job, self._recorder, self._loop), host)
        else:
            driver = Blocking(state, ThreadJournal(job, self._recorder, self._loop), host)
        job.run = Run(state, driver, self._settings)
        return job.run


class JobHost(Host):
    """What runs the handler of a job."""

    def __init__(
        self,
        job: Job,
        attempts: "Attempts",
        open_transaction: Callable[[], RecordedTransaction],
    ) -> None:
        self._job = job
        self._attempts = attempts
        self._open_transaction = open_transaction
        self._task = _current_task()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return self._attempts.in_thread(call)

    def limited(self, seconds: float, call: Callable[[], Any]) -> Any:
        return self._attempts.limited(self._job, seconds, call)

    def open_transaction(self) -> RecordedTransaction:
        return self._open_transaction()


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread
        return None


class JobAttempt(Attempt[str]):
    """One attempt of one task of this worker. A worker makes thousands per second."""

    __slots__ = ("_attempts",)

    def __init__(self, job: Job, handler: Handler, attempts: Attempts) -> None:
        super().__init__(job, handler, attempts.reporter, attempts.log)
        self._attempts = attempts

    @property
    def transaction(self) -> JobTransaction | None:
        job: Job = self.task
        return job.transaction

    def bind(self) -> Callable[[], Any]:
        job, handler, attempts = self.task, self.handler, self._attempts
        current_job.set(job)
        if job.is_past_deadline:
            raise DeadlinePassed(job.ends_at)
        if not handler.wants_context:
            return bind_call(job, handler, _not_given, _not_given, _not_given)
        send_progress = functools.partial(attempts.send_progress, job)
        open_transaction = functools.partial(attempts.open_transaction, job)
        return bind_call(job, handler, send_progress, open_transaction, self.open_run)

    def open_run(self) -> Run:
        return self._attempts.open_run(self.task, self._attempts, is_async=self.handler.is_async)

    def limit(self) -> float | None:
        limit: float | None = self.task.limit(self.handler.timeout)
        return limit

    def begins(self, watched: WatchedHandler) -> None:
        self.task.running = watched


class _InLoop:
    """The event loop of the worker. A plain function behind middleware runs in a thread."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._is_bare = not attempts.middlewares

    def load(self, run: Run) -> Awaitable[None]:
        return run.aload()

    def call(self, attempt: Attempt[Any], bound: Callable[[], Any]) -> Awaitable[Any]:
        limit = attempt.limit()
        if limit is None and self._is_bare and attempt.handler.is_async:
            called: Awaitable[Any] = bound()  # most tasks: without another coroutine for each
            return called
        return self._call(attempt, bound, limit)

    async def _call(self, attempt: Attempt[Any], bound: Callable[[], Any], limit: float | None) -> Any:
        async def in_thread() -> Any:
            return await _in_thread(functools.partial(attempts.watched, attempt, bound), attempts.submit)

        attempts = self._attempts
        is_async = attempt.handler.is_async
        proceed: Callable[[], Awaitable[Any]] = bound if is_async else in_thread
        if attempts.middlewares:
            proceed = through_middleware(attempts.middlewares, attempt.task, proceed)
        if limit is None or not is_async:  # a thread is watched where it runs
            return await proceed()
        return await attempts.within(attempt.task, limit, proceed())

    def end_run(self, run: Run) -> Awaitable[None]:
        return run.aended()

    async def commit(self, attempt: JobAttempt, report: str) -> None:
        transaction = attempt.transaction
        assert transaction is not None  # noqa: S101 - the handler has opened it
        attempt.task.phase = "ending"
        attempts = self._attempts
        attempts.settled(attempt.task, await transaction.acommit(attempts.worker_id, report))

    def roll_back(self, transaction: JobTransaction) -> Awaitable[None]:
        return transaction.arollback()


class _Here:
    """A thread of the worker."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts

    def load(self, run: Run) -> None:
        run.load()

    def call(self, attempt: Attempt[Any], bound: Callable[[], Any]) -> Any:
        return self._attempts.watched(attempt, bound)

    def end_run(self, run: Run) -> None:
        run.ended()

    def commit(self, attempt: JobAttempt, report: str) -> None:
        transaction = attempt.transaction
        assert transaction is not None  # noqa: S101 - the handler has opened it
        attempt.task.phase = "ending"
        self._attempts.settled(attempt.task, transaction.commit(self._attempts.worker_id, report))

    def roll_back(self, transaction: JobTransaction) -> None:
        transaction.rollback()


async def _in_thread(call: Callable[[], Any], submit: Callable[[Callable[[], None]], None]) -> Any:
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
