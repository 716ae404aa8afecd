"""A thread that looks after what asyncio cannot stop: handlers in threads, and those that block the loop."""

import asyncio
import contextlib
import ctypes
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from types import TracebackType
from typing import Any, TypeVar

import psycopg

from holdfast.connections.session import configure_session, with_defaults
from holdfast.engine import Engine, leases
from holdfast.handler import Handler
from holdfast.logs import Log
from holdfast.worker.job import Job
from holdfast.worker.reporting import HandlerTimeout, Reporter
from holdfast.worker.settling import release_of

TICK_SECONDS = 0.5
BLOCKED_SECONDS = 1.0
STUCK_SECONDS = 10.0
T = TypeVar("T")
STUCK_EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
PATIENCE_SECONDS = 3.0


def interrupt(thread_id: int, error: type[BaseException] | None) -> None:
    """Raise in another thread, at its next step in Python, or take back what was not raised yet.

    A call into C that blocks is not woken by it.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), None if error is None else ctypes.py_object(error)
    )


class Watched:
    """A handler that may be interrupted while it is at work, and never once it has left."""

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
        """May be called twice. What is on its way here is taken back: it must not arrive anywhere else."""
        with self._lock:
            if self._interrupted and self._thread_id is not None:
                interrupt(self._thread_id, None)
            self._thread_id = None

    def run(self, call: Callable[..., T], *given: Any) -> T:
        """Call it, at work from before its first step until after its last."""
        self.enter()
        try:
            try:
                return call(*given)
            finally:
                self.leave()
        except BaseException:
            self.leave()  # an interruption may have come while the first leave was under way
            raise

    def interrupt(self, error: type[BaseException]) -> bool:
        """Whether it is at work. One that blocks in C notices only when it comes back."""
        with self._lock:
            if self._thread_id is None:
                return False
            self._interrupted = True
            interrupt(self._thread_id, error)
            return True


class Guarded:
    """An awaitable whose every step can be interrupted: the event loop between them cannot."""

    __slots__ = ("_call", "_watched")

    def __init__(self, call: Awaitable[Any], watched: Watched) -> None:
        self._call = call
        self._watched = watched

    def __await__(self) -> "_Steps":
        return _Steps(self._call.__await__(), self._watched)


class _Steps(Generator[Any, Any, Any]):
    def __init__(self, steps: Generator[Any, Any, Any], watched: Watched) -> None:
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
    """Interrupts what is past its limit, and notices an event loop that does not come round."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, tick: float, stuck: Callable[[Watched], None], log: Log
    ) -> None:
        self.chores: tuple[Callable[[], object], ...] = ()
        self.when_blocked: Callable[[], None] = lambda: None
        self.job_of: Callable[[asyncio.Task[Any]], Job | None] = lambda _: None
        self._loop = loop
        self._tick = tick
        self._stuck = stuck
        self._log = log
        self._watched: set[Watched] = set()
        self._changed = threading.Condition()
        self._wakes_at = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._asked_at: float | None = None
        self._told = False

    @property
    def blocked_seconds(self) -> float:
        """How long the event loop has not come round."""
        asked = self._asked_at
        return 0.0 if asked is None else time.monotonic() - asked

    def watch(self, job: Job, limit: float | None, *, in_loop: bool = False) -> Watched:
        """Until `forget`. The handler is meanwhile run by `Watched.run`, or awaited as `Guarded`."""
        watched = Watched(job, limit, in_loop=in_loop)
        self._watched.add(watched)
        if watched.deadline < self._wakes_at:
            with self._changed:
                self._changed.notify()
        return watched

    def forget(self, watched: Watched) -> None:
        self._watched.discard(watched)

    def in_loop(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: the worker has ended
            self._loop.call_soon_threadsafe(call)

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
                    self._interrupt(watched, now)
            self._look_after_loop()
            for chore in self.chores:
                chore()
            with self._changed:
                if not self._closed:
                    self._wakes_at = self._next()
                    self._changed.wait(max(0.0, self._wakes_at - time.monotonic()))

    def _next(self) -> float:
        tick = time.monotonic() + self._tick
        return min(tick, min((watched.deadline for watched in list(self._watched)), default=tick))

    def _interrupt(self, watched: Watched, now: float) -> None:
        """Again and again, because a handler may have caught it; at last, it is stuck."""
        if watched.in_loop and self.blocked_seconds < TICK_SECONDS:
            watched.deadline = now + TICK_SECONDS  # the loop comes round: its own timeout ends the handler
        elif watched.interrupt(HandlerTimeout) and now - watched.limit_ends > STUCK_SECONDS:
            watched.deadline = float("inf")
            self._stuck(watched)
        else:
            watched.deadline = now + STUCK_SECONDS / 4

    def _look_after_loop(self) -> None:
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            self._told = False
            self.in_loop(self._came_round)
        elif self.blocked_seconds > BLOCKED_SECONDS:
            if not self._told:
                self._tell()
            self.when_blocked()

    def _tell(self) -> None:
        self._told = True
        task = asyncio.current_task(self._loop)
        job = None if task is None else self.job_of(task)
        self._log.warning("event_loop_blocked", **({} if job is None else job.name))

    def _came_round(self) -> None:
        self._asked_at = None


class LastResort:
    """From the watchdog's thread, on a connection of its own."""

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
        """Does not return. What cannot be given back in time is recovered when its lease ends."""
        self._log.critical("worker_stuck", why=why, exit_code=code, **(culprit.name if culprit else {}))
        faulthandler.dump_traceback(all_threads=True)
        giving = threading.Thread(target=self._give_back, args=(culprit,), daemon=True)
        giving.start()
        giving.join(PATIENCE_SECONDS)
        sys.stderr.flush()
        os._exit(code)

    def _give_back(self, culprit: Job | None) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                configure_session(connection)
                self._settle(Engine(connection), culprit)
        except Exception as error:  # noqa: BLE001 - nothing more can be done
            self._log.error("release_refused", error=str(error))

    def _settle(self, engine: Engine, culprit: Job | None) -> Any:
        others = [job for job in self._held() if job is not culprit and not job.outside]
        if others:
            engine.run(release_of(self._worker_id, others))
        if culprit is not None:
            error = HandlerTimeout("the attempt is past its limit and blocks its worker, which ended")
            written = self._reporter.raised(culprit, self._handlers[culprit.type], error)
            engine.run(leases.finish(self._worker_id, [written]))
