"""Signals: the first asks the worker to stop, the second to stop at once. SIGQUIT always means at once."""

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

from holdfast.worker.worker import Worker

WIND_DOWN_SECONDS = 20.0
AT_ONCE_SECONDS = 12.0
NUDGE_SECONDS = 2.0
NUDGE = signal.SIGRTMIN + 3 if sys.platform == "linux" else None


class Signals:
    """Python's own handlers, not the event loop's: those never run while a handler blocks the loop."""

    def __init__(self, worker: Worker, grace: timedelta, *, supervised: bool) -> None:
        self._worker = worker
        self._grace = grace.total_seconds()
        self._supervised = supervised
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._nudged_at = 0.0

    def received(self, number: int, frame: FrameType | None) -> None:
        """Only leaves marks: it runs in the middle of anything."""
        del frame
        self._count += 1
        # A supervisor passes on what all its group was sent already. When it means at once, it says SIGQUIT.
        patient = self._count == 1 or self._supervised
        if number == signal.SIGQUIT or not patient:
            self._worker.leave_within(AT_ONCE_SECONDS, 128 + number)
            self._loop.call_soon_threadsafe(self._worker.stop_at_once, number)
        elif self._count == 1:
            self._worker.leave_within(self._grace + WIND_DOWN_SECONDS, 128 + number)
            self._loop.call_soon_threadsafe(self._worker.stop, number)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Outside of the main thread there are none to be had."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers: list[int] = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]
        before = {number: signal.signal(number, self.received) for number in numbers}
        if NUDGE is not None:
            before[NUDGE] = signal.signal(NUDGE, lambda *_: None)
            self._worker.when_blocked(self.nudge)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def nudge(self) -> None:
        """Any thread may be given a signal, but only the main one runs its handler, if it is not in C."""
        now = time.monotonic()
        if NUDGE is not None and now - self._nudged_at > NUDGE_SECONDS:
            self._nudged_at = now
            signal.pthread_kill(threading.main_thread().ident or 0, NUDGE)
