"""The watchdog: a thread that interrupts handlers which asyncio cannot stop."""

import asyncio
import contextlib
import ctypes
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import psycopg

from holdfast._connections.session import configure_session, with_defaults
from holdfast._engine import Engine, leases
from holdfast._serialization.failure import brief
from holdfast._telemetry.logs import Log
from holdfast._worker.handler import Handler
from holdfast._worker.jobs import Job, Stop
from holdfast._worker.releasing import release_statement
from holdfast._worker.report import HandlerTimeout, Reporter
from holdfast._workflows.ends import Stopped

T = TypeVar("T")

TICK_SECONDS = 0.5
BLOCKED_SECONDS = 1.0
STUCK_SECONDS = 10.0
EMERGENCY_SECONDS = 3.0
STUCK_EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h


class WatchedHandler:
    """A running handler. It can be interrupted at its next step in Python, but never once it has returned."""

    __slots__ = ("_interrupted", "_lock", "_thread_id", "deadline", "in_loop", "job", "limit_ends")

    def __init__(self, job: Job, limit: float | None, *, in_loop: bool) -> None:
        self.job = job
        self.in_loop = in_loop
        self.limit_ends = float("inf") if limit is None else time.monotonic() + limit
        self.deadline = self.limit_ends
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        self._interrupted = False

    def enter(self) -> None:
        with self._lock:
            self._thread_id = threading.get_ident()

    def leave(self) -> None:
        """May be called twice. An interruption that has not arrived yet is taken back."""
        with self._lock:
            if self._interrupted and self._thread_id is not None:
                _raise_in_thread(self._thread_id, None)
            self._thread_id = None

    def run(self, call: Callable[..., T], *given: Any) -> T:
        """Call it, interruptible from before its first step until after its last."""
        self.enter()
        try:
            try:
                return call(*given)
            finally:
                self.leave()
        except BaseException:
            self.leave()  # an interruption may have come during the first leave
            raise

    def interrupt(self, error: type[BaseException]) -> bool:
        """Return whether it is running. A handler that blocks in C notices only when the call returns."""
        with self._lock:
            if self._thread_id is None:
                return False
            self._interrupted = True
            _raise_in_thread(self._thread_id, error)
            return True

    def stopped(self, why: Stop) -> None:
        """Its task was taken from this worker: another may begin before it reaches a checkpoint."""
        if why == "lost":
            self.interrupt(Stopped)


class InterruptibleAwaitable:
    """An awaitable whose every step can be interrupted; the event loop between the steps cannot."""

    __slots__ = ("_call", "_watched")

    def __init__(self, call: Awaitable[Any], watched: WatchedHandler) -> None:
        self._call = call
        self._watched = watched

    def __await__(self) -> "_Steps":
        return _Steps(self._call.__await__(), self._watched)


class _Steps(Generator[Any, Any, Any]):
    def __init__(self, steps: Generator[Any, Any, Any], watched: WatchedHandler) -> None:
        self._steps = steps
        self._watched = watched

    def send(self, value: Any) -> Any:
        return self._watched.run(self._steps.send, value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        trace: TracebackType | None = None,
        /,
    ) -> Any:
        del value, trace
        return self._watched.run(self._steps.throw, kind if isinstance(kind, BaseException) else kind())


class Watchdog:
    """Interrupts handlers that are past their limit, and notices an event loop that is blocked."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        tick: float,
        stuck: Callable[[WatchedHandler], None],
        job_of: Callable[["asyncio.Task[Any]"], Job | None],
        when_blocked: Callable[[], None],
        chores: Sequence[Callable[[], object]],
        log: Log,
    ) -> None:
        """`when_blocked` is called again and again while the loop is blocked, `chores` at every tick."""
        self._loop = loop
        self._tick = tick
        self._stuck = stuck
        self._job_of = job_of
        self._when_blocked = when_blocked
        self._chores = chores
        self._log = log
        self._watched: set[WatchedHandler] = set()
        self._changed = threading.Condition()
        self._wakes_at = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._asked_at: float | None = None
        self._told = False

    @property
    def blocked_seconds(self) -> float:
        """For how long the event loop has not run what the watchdog scheduled in it."""
        asked = self._asked_at
        return 0.0 if asked is None else time.monotonic() - asked

    def watch(self, job: Job, limit: float | None, *, in_loop: bool = False) -> WatchedHandler:
        """Watch until `forget`. Run the handler with `WatchedHandler.run` or `InterruptibleAwaitable`."""
        watched = WatchedHandler(job, limit, in_loop=in_loop)
        self._watched.add(watched)
        if watched.deadline < self._wakes_at:
            with self._changed:
                self._changed.notify()
        return watched

    def forget(self, watched: WatchedHandler) -> None:
        self._watched.discard(watched)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="holdfast-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def _run(self) -> None:
        while not self._closed:
            now = time.monotonic()
            for watched in list(self._watched):
                if watched.deadline <= now:
                    self._guarded(self._interrupt, watched, now)
            for work in (self._check_loop, *self._chores):
                self._guarded(work)
            with self._changed:
                if not self._closed:
                    self._wakes_at = self._next()
                    self._changed.wait(max(0.0, self._wakes_at - time.monotonic()))

    def _guarded(self, work: Callable[..., object], *given: object) -> None:
        """Without this thread, no handler would be interrupted and no dead connection hung up."""
        try:
            work(*given)
        except Exception as error:  # noqa: BLE001 - see above
            self._log.error("watchdog_failed", error=brief(error), exc_info=error)

    def _next(self) -> float:
        tick = time.monotonic() + self._tick
        return min(tick, min((watched.deadline for watched in list(self._watched)), default=tick))

    def _interrupt(self, watched: WatchedHandler, now: float) -> None:
        """Interrupt it repeatedly, because a handler may catch the error; in the end it counts as stuck."""
        if watched.in_loop and self.blocked_seconds < TICK_SECONDS:
            watched.deadline = now + TICK_SECONDS  # the loop runs: its own timeout ends the handler
        elif watched.interrupt(HandlerTimeout) and now - watched.limit_ends > STUCK_SECONDS:
            watched.deadline = float("inf")
            self._stuck(watched)
        else:
            watched.deadline = now + STUCK_SECONDS / 4

    def _check_loop(self) -> None:
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            self._told = False
            call_in_loop(self._loop, self._loop_ran)
        elif self.blocked_seconds > BLOCKED_SECONDS:
            if not self._told:
                self._warn()
            self._when_blocked()

    def _warn(self) -> None:
        self._told = True
        task = asyncio.current_task(self._loop)
        job = None if task is None else self._job_of(task)
        self._log.warning("event_loop_blocked", **({} if job is None else job.log_fields))

    def _loop_ran(self) -> None:
        self._asked_at = None


class EmergencyExit:
    """Ends the process from the watchdog's thread when the event loop is stuck."""

    def __init__(
        self,
        *,
        url: str,
        worker_id: str,
        handlers: Mapping[str, Handler],
        held: Callable[[], list[Job]],
        reporter: Reporter,
        log: Log,
    ) -> None:
        self._url = with_defaults(url, worker=True)
        self._worker_id = worker_id
        self._handlers = handlers
        self._held = held
        self._reporter = reporter
        self._log = log

    def leave(self, code: int, why: str, culprit: Job | None = None) -> None:
        """Does not return. What cannot be released in time is recovered when its lease ends."""
        self._log.critical("worker_stuck", why=why, exit_code=code, **(culprit.log_fields if culprit else {}))
        faulthandler.dump_traceback(all_threads=True)
        releasing = threading.Thread(target=self._release, args=(culprit,), daemon=True)
        releasing.start()
        releasing.join(EMERGENCY_SECONDS)
        sys.stderr.flush()
        os._exit(code)

    def _release(self, culprit: Job | None) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                configure_session(connection)
                self._settle(Engine(connection), culprit)
        except Exception as error:  # noqa: BLE001 - nothing more can be done
            self._log.error("release_refused", error=str(error))

    def _settle(self, engine: Engine, culprit: Job | None) -> None:
        kept = (job for job in self._held() if job is not culprit)
        others = [job for job in kept if not (job.outside or job.has_begun_for_good)]
        if others:
            engine.run(release_statement(self._worker_id, others))
        if culprit is not None:
            error = HandlerTimeout("the attempt is past its limit and blocks its worker, which ended")
            report = self._reporter.raised(culprit, self._handlers[culprit.type], error)
            engine.run(leases.finish(self._worker_id, [report]))


def call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *given: object) -> None:
    """Call it in the event loop, from any thread; does nothing if the worker has ended."""
    with contextlib.suppress(RuntimeError):  # the loop was closed
        loop.call_soon_threadsafe(call, *given)


def _raise_in_thread(thread_id: int, error: type[BaseException] | None) -> None:
    """Raise in another thread at its next step in Python, or with None take back what was not raised yet.

    A call into C that blocks is not woken by it.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), None if error is None else ctypes.py_object(error)
    )
