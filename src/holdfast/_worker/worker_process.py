"""Runs a worker as this process, until a signal stops it."""

import asyncio
import contextlib
import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import FrameType
from typing import Any

from holdfast._install.postgres.database_url import resolve_database_url
from holdfast._telemetry.logs import configure, worker_log
from holdfast._telemetry.supervision import end_with_parent, is_supervised, notify_supervisor
from holdfast._worker.executors import check_executors
from holdfast._worker.metrics import Metrics, serve
from holdfast._worker.subscription import WorkerApp, subscribed
from holdfast._worker.worker import Worker
from holdfast.settings import Settings

LEFTOVER_SECONDS = 1.0
WIND_DOWN_SECONDS = 20.0
AT_ONCE_SECONDS = 12.0
NUDGE_SECONDS = 2.0
NUDGE = signal.SIGRTMIN + 3 if sys.platform == "linux" else None


def run(app: WorkerApp, *, settings: Settings | None = None, **options: Any) -> int:
    """Run a worker in this process until a signal stops it; returns the exit code."""
    settings = settings or Settings.load(**options)
    check_executors(settings, app)
    configure(settings.log_format, settings.log_level)
    end_with_parent()
    url = resolve_database_url(settings)
    if settings.database_url is None:
        from holdfast._install.schema import Choice, migrate  # noqa: PLC0415 - for the embedded server only

        migrate(url, choice=Choice.of(settings))
    loop = _new_loop()
    # What was loaded stays. A full collection would go through all of it, and every handler would wait.
    gc.collect()
    gc.freeze()
    try:
        return _run_until_done(loop, loop.create_task(_run(app, url, settings)))
    finally:
        _close(loop)


def _run_until_done(loop: asyncio.AbstractEventLoop, worker: "asyncio.Task[int]") -> int:
    """Run the loop again if an asyncio task of a handler calls sys.exit, which stops the loop."""
    while True:
        try:
            return loop.run_until_complete(worker)
        except (SystemExit, KeyboardInterrupt) as error:
            if worker.done():
                raise
            worker_log("").error("exit_ignored", error=repr(error), why="only a signal ends a worker")


async def _run(app: WorkerApp, url: str, settings: Settings) -> int:
    settings = subscribed(app, settings)
    metrics = Metrics()
    nudge = MainThreadNudge()
    worker = Worker(app, url, settings, metrics=metrics, owns_process=True, when_blocked=nudge.send)
    with (
        _served(metrics, settings.metrics_port, worker.worker_id),
        Signals(worker, settings.grace, nudge, supervised=is_supervised()).installed(),
    ):
        notifying = asyncio.create_task(_notify_when_ready(worker))
        try:
            return await worker.run()
        finally:
            notifying.cancel()
            notify_supervisor("STOPPING=1")


@contextlib.contextmanager
def _served(metrics: Metrics, port: int | None, worker_id: str) -> Any:
    if port is None:
        yield
        return
    served, stop = serve(metrics, port)
    worker_log(worker_id).info("metrics_served", port=served)
    try:
        yield
    finally:
        stop()


async def _notify_when_ready(worker: Worker) -> None:
    await worker.ready.wait()
    notify_supervisor("READY=1")


def _new_loop() -> asyncio.AbstractEventLoop:
    """Use uvloop if it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - an extra

        factory = uvloop.new_event_loop
    return factory()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close without waiting for what handlers left behind: tasks that do not end, threads that hang."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=LEFTOVER_SECONDS))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class MainThreadNudge:
    """A signal that makes the main thread run pending Python signal handlers, unless it blocks in C.

    The system may deliver a signal to any thread, but only the main thread runs its handler.
    """

    def __init__(self) -> None:
        self._installed = False
        self._sent_at = 0.0

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Only in the main thread; elsewhere the signal would end the process."""
        if NUDGE is None:
            yield
            return
        before = signal.signal(NUDGE, lambda *_: None)
        self._installed = True
        try:
            yield
        finally:
            self._installed = False
            signal.signal(NUDGE, before)

    def send(self) -> None:
        now = time.monotonic()
        if NUDGE is not None and self._installed and now - self._sent_at > NUDGE_SECONDS:
            self._sent_at = now
            signal.pthread_kill(threading.main_thread().ident or 0, NUDGE)


class Signals:
    """The first signal stops the worker, the second stops it at once; SIGQUIT always stops it at once.

    These are Python's own handlers: those of the event loop never run while a handler blocks the loop.
    """

    def __init__(self, worker: Worker, grace: timedelta, nudge: MainThreadNudge, *, supervised: bool) -> None:
        self._worker = worker
        self._grace = grace.total_seconds()
        self._nudge = nudge
        self._supervised = supervised
        self._loop = asyncio.get_running_loop()
        self._count = 0

    def received(self, number: int, frame: FrameType | None) -> None:
        """Only schedules the stop: it may run in the middle of any code."""
        del frame
        self._count += 1
        # A supervisor repeats signals that its whole group received. It sends SIGQUIT to stop at once.
        patient = self._count == 1 or self._supervised
        if number == signal.SIGQUIT or not patient:
            self._worker.leave_within(AT_ONCE_SECONDS, 128 + number)
            self._loop.call_soon_threadsafe(self._worker.stop_at_once, number)
        elif self._count == 1:
            self._worker.leave_within(self._grace + WIND_DOWN_SECONDS, 128 + number)
            self._loop.call_soon_threadsafe(self._worker.stop, number)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Does nothing outside the main thread, which alone can handle signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers: list[int] = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]
        before = {number: signal.signal(number, self.received) for number in numbers}
        try:
            with self._nudge.installed():
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
