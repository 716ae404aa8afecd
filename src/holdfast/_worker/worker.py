"""A worker: starts its loops and threads, runs until it is stopped, and winds down."""

import asyncio
import contextlib
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast._connections.worker_connection import Outage
from holdfast._engine import queues
from holdfast._serialization.failure import brief
from holdfast._telemetry.logs import Log, worker_log
from holdfast._telemetry.supervision import notify_supervisor
from holdfast._worker.metrics import Metrics
from holdfast._worker.subscription import WorkerApp, describe, subscribed, unserved
from holdfast._worker.watchdog import STUCK_EXIT_CODE, WatchedHandler, call_in_loop
from holdfast._worker.wiring import WorkerDeps, WorkerParts
from holdfast.errors import DatabaseUnavailable, HoldfastError, TransactionConflict
from holdfast.settings import Settings

UNWIND_SECONDS = 2.0
LAST_STATEMENT_SECONDS = 5.0
HURRY_SECONDS = 1.0
FAILED_SECONDS = 12.0
"""How long a worker may take to end after one of its threads has failed."""


def new_worker_id(name: str | None) -> str:
    """A new one at every start: a worker that died must not look alive because another has its name.

    Short, because every lease and every outcome holds it.
    """
    return f"{name or socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


class Worker:
    """Claims, runs and settles tasks until it is stopped; then it finishes or releases what it holds."""

    def __init__(
        self,
        app: WorkerApp,
        url: str,
        settings: Settings,
        *,
        metrics: Metrics | None = None,
        owns_process: bool = False,
        when_blocked: Callable[[], None] = lambda: None,
    ) -> None:
        """One that owns its process may end it. `when_blocked` is called while the event loop is blocked."""
        self.worker_id = new_worker_id(settings.worker_id)
        self.metrics = metrics or Metrics()
        self.ready = asyncio.Event()
        self._app = app
        self._settings = subscribed(app, settings)
        self._owns_process = owns_process
        self._log: Log = worker_log(self.worker_id)
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        self._thread_ended = asyncio.Event()
        self._exit_code = 0
        self._leave_by = (float("inf"), 0)
        self._loop = asyncio.get_running_loop()
        self._loops: dict[str, asyncio.Task[None]] = {}
        deps = WorkerDeps(
            app=app,
            url=url,
            worker_id=self.worker_id,
            settings=self._settings,
            stopping=self._stopping,
            loop=self._loop,
            log=self._log,
            outage=Outage(self._log),
            metrics=self.metrics,
        )
        self._parts = WorkerParts(
            deps,
            stuck=self._handle_stuck,
            when_blocked=when_blocked,
            every_tick=self._leave_if_late,
            thread_failed=self._thread_failed,
        )

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Call once to let running tasks end, twice to stop at once."""
        if self._stopping.is_set():
            self.stop_at_once(signal_number)
        self._stopping.set()
        self._parts.jobs.stop_waiting()
        self._parts.listener.woken.set()

    def stop_at_once(self, signal_number: int = signal.SIGTERM) -> None:
        self._exit_code = 128 + signal_number
        self._at_once.set()
        if not self._stopping.is_set():
            self.stop(signal_number)

    def leave_within(self, seconds: float, code: int) -> None:
        """End the process by then, even if the event loop is blocked. Called by signal handlers."""
        self._leave_by = min(self._leave_by, (time.monotonic() + seconds, code))

    async def run(self) -> int:
        """Run until stopped. Returns the exit code: 0, or 128 + signal after `stop_at_once`."""
        try:
            if await self._register():
                await self._serve()
        finally:
            await self._end()
        return self._exit_code

    async def _register(self) -> bool:
        """Wait for the database as long as it takes; False if stopped meanwhile."""
        while not self._stopping.is_set():
            try:
                await self._parts.registration.register()
            except (DatabaseUnavailable, TransactionConflict) as error:
                notify_supervisor("STATUS=waiting for the database")
                await self._parts.claimer.connection.pause(error)
            else:
                return True
        return False

    async def _serve(self) -> None:
        parts = self._parts
        parts.leader.start()
        parts.heartbeat.start()
        parts.watchdog.start()
        await parts.runner.prepare()
        self._start_loops()
        self._log.info("worker_started", **describe(self._app, self._settings))
        await self._warn_of_unserved()
        self.ready.set()
        try:
            await self._until_stopped()
        except Exception:
            self._log.exception("worker_failed")
            parts.releaser.steps_failed = self._loops["steps"].done()
            self.stop_at_once(signal.SIGABRT)
            raise
        finally:
            await self._wind_down()

    def _start_loops(self) -> None:
        parts = self._parts
        loops: dict[str, Coroutine[Any, Any, None]] = {
            "claim": parts.claim_loop.run(),
            "settle": parts.settler.run(),
            "steps": parts.recorder.run(),
            "joins": parts.join_looker.run(),
            "activity": parts.activity.run(),
            "listen": parts.listener.run(),
            "wakeups": parts.throttle.run(),
            "environment": parts.registration.record_environment(),
            "threads": self._end_with_threads(),
        }
        self._loops = {name: asyncio.create_task(loop, name=name) for name, loop in loops.items()}

    async def _until_stopped(self) -> None:
        """Some loops end by themselves: the listener behind a pooler, and what is done once."""
        stopping = asyncio.create_task(self._stopping.wait())
        waiting: set[asyncio.Task[Any]] = {stopping, *self._loops.values()}
        try:
            while not self._stopping.is_set():
                ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in ended:
                    one.result()
        finally:
            stopping.cancel()

    async def _end_with_threads(self) -> None:
        await self._thread_ended.wait()
        raise RuntimeError("a thread of this worker has ended")

    async def _warn_of_unserved(self) -> None:
        """About queues of the application that it does not serve, and due tasks that no worker serves."""
        served = self._settings.worker_queues
        for queue, names in unserved(self._app, self._settings).items():
            wanted = ",".join([*served, queue])
            self._log.warning(
                "app_queue_not_served", queue=queue, used_by=names, hint=f"to serve it too: --queues {wanted}"
            )
        with contextlib.suppress(HoldfastError):  # the leader looks again every minute
            waiting = await self._parts.claimer.connection.run(
                queues.unserved_queues, seconds=LAST_STATEMENT_SECONDS
            )
            self._parts.unserved.warn(waiting)

    async def _wind_down(self) -> None:
        """Stop claiming, let handlers end in time, send their reports, release the rest."""
        parts, jobs = self._parts, self._parts.jobs
        handing_over = asyncio.create_task(asyncio.to_thread(parts.leader.close, parts.hand_over))
        ends_at = time.monotonic() + self._settings.grace.total_seconds()
        self._log.info("worker_stopping", running=len(jobs.slots.running), at_once=self._at_once.is_set())
        await self._up_to(LAST_STATEMENT_SECONDS, _done(self._loops["claim"]), hurry=True)
        jobs.give_back(parts.runner.stop_starting())
        await self._up_to(ends_at - time.monotonic(), jobs.slots.nothing_runs.wait(), hurry=True)
        for job in list(jobs.slots.running):
            jobs.stop(job, "shutdown")
        await self._up_to(UNWIND_SECONDS, jobs.slots.nothing_runs.wait())
        await self._up_to(LAST_STATEMENT_SECONDS, parts.settler.emptied())
        jobs.give_back(list(jobs.held))
        await self._up_to(LAST_STATEMENT_SECONDS, parts.releaser.emptied())
        await handing_over
        await self._up_to(LAST_STATEMENT_SECONDS, parts.killed.emptied())
        await self._up_to(LAST_STATEMENT_SECONDS, parts.activity.report())

    async def _up_to(
        self, seconds: float, event: Coroutine[Any, Any, object], *, hurry: bool = False
    ) -> None:
        """Wait for it, at most this long; with `hurry`, only until `stop_at_once`."""
        if self._at_once.is_set():
            seconds = min(seconds, HURRY_SECONDS)
        waits = [asyncio.create_task(event)]
        if hurry:
            waits.append(asyncio.create_task(self._at_once.wait()))
        await asyncio.wait(waits, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    async def _end(self) -> None:
        parts = self._parts
        for connection in parts.connections:
            await connection.give_up()
        for loop in self._loops.values():
            loop.cancel()
        await asyncio.gather(*self._loops.values(), return_exceptions=True)
        await parts.releaser.close()
        await parts.runner.unhandled.close()
        await asyncio.to_thread(parts.leader.close)
        await parts.killed.close()
        await asyncio.to_thread(parts.heartbeat.close)
        await asyncio.to_thread(parts.watchdog.close)
        await parts.runner.close()
        if self.ready.is_set():
            await self._up_to(UNWIND_SECONDS, parts.registration.retire(parts.jobs.held))
        for connection in parts.connections:
            await connection.close()
        self._log.info("worker_stopped", exit_code=self._exit_code)

    def _handle_stuck(self, watched: WatchedHandler) -> None:
        """A handler is far past its limit and cannot be interrupted. Called by the watchdog's thread."""
        if not watched.in_loop:
            call_in_loop(self._loop, self._parts.runner.abandon, watched.job)
        elif self._owns_process:
            self._parts.emergency_exit.leave(STUCK_EXIT_CODE, "a handler blocks the event loop", watched.job)
        else:
            self._log.error("handler_stuck", **watched.job.log_fields)

    def _thread_failed(self, name: str, error: BaseException) -> None:
        """Called by the thread of the heartbeat or of the leader, as its last act."""
        self._log.critical("thread_failed", thread=name, error=brief(error), exc_info=error)
        self.leave_within(FAILED_SECONDS, 128 + signal.SIGABRT)
        call_in_loop(self._loop, self._thread_ended.set)

    def _leave_if_late(self) -> None:
        """Called by the watchdog's thread at every tick."""
        leave_by, code = self._leave_by
        if self._owns_process and time.monotonic() > leave_by:
            self._parts.emergency_exit.leave(code, "it was asked to stop and could not")


async def _done(task: "asyncio.Task[None]") -> None:
    await asyncio.wait([task])
