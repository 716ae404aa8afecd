"""A thread that looks after what asyncio cannot stop: handlers in threads, and those that block the loop."""

import asyncio
import contextlib
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator

from holdfast.worker.report import HandlerTimeout
from holdfast.worker.threads import interrupt

TICK_SECONDS = 0.5


class _Watched:
    """A thread inside a handler. Once the handler has returned it is never interrupted."""

    __slots__ = ("lock", "thread_id")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread_id: int | None = threading.get_ident()

    def interrupt(self) -> None:
        with self.lock:
            if self.thread_id is not None:
                interrupt(self.thread_id, HandlerTimeout)

    def leave(self) -> None:
        with self.lock:
            self.thread_id = None


class Watchdog:
    """Interrupts what is past its limit, and tells how long the event loop has been blocked."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, overdue: Callable[[asyncio.Task[object]], bool]
    ) -> None:
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._overdue = overdue
        self._deadlines: list[tuple[float, int, _Watched]] = []
        self._number = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._answered = time.monotonic()
        self._asked = False

    @property
    def blocked_seconds(self) -> float:
        """How long the event loop has not come round."""
        return time.monotonic() - self._answered if self._asked else 0.0

    @contextlib.contextmanager
    def limit(self, seconds: float | None) -> Iterator[None]:
        """Around a handler in its thread."""
        if seconds is None:
            yield
            return
        watched = _Watched()
        with self._changed:
            heapq.heappush(self._deadlines, (time.monotonic() + seconds, next(self._number), watched))
            self._changed.notify()
        try:
            yield
        finally:
            watched.leave()

    def start(self) -> None:
        threading.Thread(target=self._run, name="holdfast-watchdog", daemon=True).start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while not self._closed:
            self._interrupt_overdue_threads()
            self._look_after_loop()
            with self._changed:
                if not self._closed:
                    self._changed.wait(self._until_next())

    def _until_next(self) -> float:
        if not self._deadlines:
            return TICK_SECONDS
        return max(0.0, min(TICK_SECONDS, self._deadlines[0][0] - time.monotonic()))

    def _interrupt_overdue_threads(self) -> None:
        now = time.monotonic()
        with self._changed:
            while self._deadlines and self._deadlines[0][0] <= now:
                heapq.heappop(self._deadlines)[2].interrupt()

    def _look_after_loop(self) -> None:
        if not self._asked:
            self._asked = True
            with contextlib.suppress(RuntimeError):  # the loop was closed: the worker is ending
                self._loop.call_soon_threadsafe(self._came_round)
        elif self.blocked_seconds > TICK_SECONDS:
            task = asyncio.current_task(self._loop)
            if task is not None and self._overdue(task):
                interrupt(self._loop_thread, HandlerTimeout)

    def _came_round(self) -> None:
        self._answered = time.monotonic()
        self._asked = False
