"""A worker: its loops, from start to stop."""

import asyncio
import contextlib
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast import __version__
from holdfast.connections.session import CLIENT_ROLE
from holdfast.connections.worker_connection import WorkerConnection
from holdfast.engine import Statement, queues, schedules, workers
from holdfast.errors import DatabaseUnavailable, HoldfastError, NotAllowed, Refused, TryAgain
from holdfast.executors.origin import find_origin
from holdfast.handler import Handler
from holdfast.logs import Log, worker_log
from holdfast.settings import Settings
from holdfast.supervision import tell
from holdfast.worker.metrics import Metrics
from holdfast.worker.registration import describe_environment
from holdfast.worker.subscription import describe, subscribed, unserved
from holdfast.worker.watchdog import STUCK_EXIT_CODE, Watched
from holdfast.worker.wiring import Ground, Registered, assemble

T = TypeVar("T")

UNWIND_SECONDS = 2.0
LAST_WORDS_SECONDS = 5.0
HURRY_SECONDS = 1.0


def new_worker_id(name: str | None) -> str:
    """New at every start: a process that died must not look alive because another has its name."""
    return f"{name or socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


class Worker:
    """Claims, runs and settles until it is asked to stop; then ends what it holds and gives back the rest."""

    def __init__(
        self,
        app: Registered,
        url: str,
        settings: Settings,
        *,
        metrics: Metrics | None = None,
        owns_process: bool = False,
    ) -> None:
        self.worker_id = new_worker_id(settings.worker_id)
        self.metrics = metrics or Metrics()
        self.ready = asyncio.Event()
        self._app = app
        self._url = url
        self._settings = settings = subscribed(app, settings)
        self._owns_process = owns_process
        self._log: Log = worker_log(self.worker_id)
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        self._exit_code = 0
        self._leave_by = (float("inf"), 0)
        self._loops: list[asyncio.Task[None]] = []
        ground = Ground(
            app=app,
            url=url,
            worker_id=self.worker_id,
            settings=settings,
            stopping=self._stopping,
            log=self._log,
            metrics=self.metrics,
            stuck=self._stuck,
            chores=self._leave_if_late,
        )
        self._parts = assemble(ground, self._registration)

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Ask once to end in peace, twice to end at once."""
        if self._stopping.is_set():
            self.stop_at_once(signal_number)
        self._stopping.set()
        self._parts.runner.room.set()
        self._parts.listener.woken.set()

    def stop_at_once(self, signal_number: int = signal.SIGTERM) -> None:
        self._exit_code = 128 + signal_number
        self._at_once.set()
        if not self._stopping.is_set():
            self.stop(signal_number)

    def leave_within(self, seconds: float, code: int) -> None:
        """End the process by then even if the event loop does not come round. Called by signal handlers."""
        self._leave_by = min(self._leave_by, (time.monotonic() + seconds, code))

    def when_blocked(self, call: Callable[[], None]) -> None:
        """Let this be called from time to time, by another thread, while the event loop is blocked."""
        self._parts.watchdog.when_blocked = call

    async def run(self) -> int:
        """Until stopped. Answers the exit code: 0 after an orderly end, 128 + signal after a second one."""
        try:
            if await self._register():
                await self._serve()
        finally:
            await self._end()
        return self._exit_code

    async def _register(self) -> bool:
        """Wait for the database as long as it takes; false if stopped meanwhile."""
        link = self._parts.claiming
        while not self._stopping.is_set():
            try:
                await link.run(self._registration)
                await self._register_types()
                await self._declare_schedules()
            except (DatabaseUnavailable, TryAgain) as error:
                tell("STATUS=waiting for the database")
                await link.pause(error)
            else:
                return True
        return False

    async def _record_environment(self) -> None:
        """For whoever asks later what ran a task. Nothing depends on it."""
        app = self._app
        try:
            found = await asyncio.to_thread(
                lambda: describe_environment(find_origin(app, app.origin), app.handlers)
            )
            recording = workers.record_environment(self.worker_id, found)
            await self._parts.claiming.run(lambda: recording, seconds=LAST_WORDS_SECONDS)
        except Exception as error:  # noqa: BLE001 - as said
            self._log.warning("environment_not_recorded", error=str(error))

    def _registration(self) -> Statement[None]:
        settings = self._settings
        return workers.register_worker(
            self.worker_id,
            socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            queues=list(settings.worker_queues) or None,
            type_prefixes=list(settings.worker_type_prefixes) or None,
            concurrency=settings.worker_concurrency,
            timeout=settings.worker_timeout,
            heartbeat=settings.heartbeat,
        )

    async def _register_types(self) -> None:
        """For those who enqueue without this code. A refusal keeps no worker from its tasks."""
        registration = workers.register_types([_declared(handler) for handler in self._app.handlers.values()])
        try:
            await self._parts.claiming.run(lambda: registration)
        except Refused as error:
            self._log.error("types_refused", error=str(error))

    async def _declare_schedules(self) -> None:
        """A schedule that cannot be had keeps no worker from its tasks."""
        app = self._app
        declaration = schedules.declare_schedules(app.name, app.schedules.values())
        try:
            declared = await self._run_as_client(declaration)
        except NotAllowed:
            if app.schedules:
                apply = f"holdfast schedules apply {app.origin or 'MODULE:APP'}"
                self._log.warning(
                    "schedules_not_declared",
                    why="the worker's login lacks the role holdfast_client",
                    hint=f"run this with the application's login: {apply}",
                )
            return
        except Refused as error:
            self._log.error("schedules_refused", error=str(error))
            return
        for one in declared:
            if one.verdict == "taken":
                self._log.error("schedule_taken", schedule=one.name, hint="give one of them another name")
            elif one.verdict != "unchanged":
                self._log.info("schedule_declared", schedule=one.name, verdict=one.verdict)

    async def _run_as_client(self, statement: Statement[T]) -> T:
        """With the authority to enqueue, which the worker's other connections do not have."""
        link = WorkerConnection(
            self._url, self._log, "declaring", self.metrics.reconnected, self._stopping, role=CLIENT_ROLE
        )
        try:
            return await link.run(lambda: statement)
        finally:
            await link.close()

    async def _serve(self) -> None:
        parts = self._parts
        parts.leader.start()
        parts.beater.start()
        parts.watchdog.start()
        await parts.runner.prepare()
        self._loops = [
            asyncio.create_task(parts.claim_loop.run(), name="claim"),
            asyncio.create_task(parts.settler.run(), name="settle"),
            asyncio.create_task(parts.listener.run(), name="listen"),
            asyncio.create_task(parts.door.run(), name="door"),
            asyncio.create_task(self._record_environment(), name="record"),
        ]
        self._log.info("worker_started", **describe(self._app, self._settings))
        await self._warn_of_unserved()
        self.ready.set()
        try:
            await self._until_stopped()
        except Exception:
            self._log.exception("worker_failed")
            self.stop_at_once(signal.SIGABRT)
            raise
        finally:
            await self._wind_down()

    async def _until_stopped(self) -> None:
        """Some end by themselves: the listener where there is nothing to hear, and what is done once."""
        stopping = asyncio.create_task(self._stopping.wait())
        waiting: set[asyncio.Task[Any]] = {stopping, *self._loops}
        try:
            while not self._stopping.is_set():
                ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in ended:
                    one.result()
        finally:
            stopping.cancel()

    async def _warn_of_unserved(self) -> None:
        """What of the application goes elsewhere, and what waits although no worker at all serves it."""
        served = self._settings.worker_queues
        for queue, names in unserved(self._app, self._settings).items():
            wanted = ",".join([*served, queue])
            self._log.warning(
                "queue_not_served", queue=queue, used_by=names, hint=f"--queues {wanted} would serve it, too"
            )
        with contextlib.suppress(HoldfastError):  # the leader looks again every minute
            waiting = await self._parts.claiming.run(queues.unserved_queues, seconds=LAST_WORDS_SECONDS)
            self._parts.unserved.tell(waiting)

    async def _wind_down(self) -> None:
        """Claim no more, let handlers end in time, tell what they did, give back what is left."""
        parts = self._parts
        handing_over = asyncio.create_task(asyncio.to_thread(parts.leader.close, parts.beater.withdraw))
        ends_at = time.monotonic() + self._settings.grace.total_seconds()
        self._log.info("worker_stopping", running=len(parts.runner.running), at_once=self._at_once.is_set())
        await self._up_to(LAST_WORDS_SECONDS, _done(self._loops[0]), hurry=True)
        parts.releaser.release_soon(parts.runner.start_no_more())
        await self._up_to(ends_at - time.monotonic(), parts.runner.quiet.wait(), hurry=True)
        for job in list(parts.runner.running):
            parts.runner.stop(job, "shutdown")
        await self._up_to(UNWIND_SECONDS, parts.runner.quiet.wait())
        await self._up_to(LAST_WORDS_SECONDS, parts.settler.emptied())
        parts.releaser.release_soon(list(parts.runner.held))
        await self._up_to(LAST_WORDS_SECONDS, parts.releaser.emptied())
        await handing_over
        await self._up_to(LAST_WORDS_SECONDS, parts.killed.emptied())

    async def _up_to(
        self, seconds: float, event: Coroutine[Any, Any, object], *, hurry: bool = False
    ) -> None:
        """Wait for it, but not longer than that; with `hurry`, not past the second request to stop."""
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
        for link in parts.links:
            await link.give_up()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await parts.releaser.close()
        await asyncio.to_thread(parts.leader.close)
        await parts.killed.close()
        await asyncio.to_thread(parts.beater.close)
        await asyncio.to_thread(parts.watchdog.close)
        await parts.runner.close()
        if self.ready.is_set():
            await self._up_to(UNWIND_SECONDS, self._retire())
        for link in parts.links:
            await link.close()
        self._log.info("worker_stopped", exit_code=self._exit_code)

    async def _retire(self) -> None:
        with contextlib.suppress(HoldfastError):
            retirement = workers.retire_worker(self.worker_id)
            await self._parts.claiming.run(lambda: retirement, seconds=HURRY_SECONDS)

    def _stuck(self, watched: Watched) -> None:
        """From the watchdog's thread: a handler is far past its limit, and cannot be interrupted."""
        if not watched.in_loop:
            self._parts.watchdog.in_loop(lambda: self._parts.runner.abandon(watched.job))
        elif self._owns_process:
            self._parts.last_resort.leave(STUCK_EXIT_CODE, "a handler blocks the event loop", watched.job)
        else:
            self._log.error("handler_stuck", **watched.job.name)

    def _leave_if_late(self) -> None:
        """From the watchdog's thread, at every tick."""
        leave_by, code = self._leave_by
        if self._owns_process and time.monotonic() > leave_by:
            self._parts.last_resort.leave(code, "it was asked to stop and could not")


def _declared(handler: Handler) -> dict[str, Any]:
    found = {
        "type": handler.type,
        "queue": handler.queue,
        "priority": handler.priority,
        "max_attempts": handler.max_attempts,
        "lease": handler.lease,
    }
    return {name: value for name, value in found.items() if value is not None}


async def _done(task: "asyncio.Task[None]") -> None:
    await asyncio.wait([task])
