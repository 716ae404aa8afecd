"""A thread that looks after what asyncio cannot stop: handlers in threads, and those that block the loop."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.worker.job import Job
from holdfast.worker.logs import Log
from holdfast.worker.report import HandlerTimeout
from holdfast.worker.watched import Watched

TICK_SECONDS = 0.5
BLOCKED_SECONDS = 1.0
STUCK_SECONDS = 10.0


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
