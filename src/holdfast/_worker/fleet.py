"""Several worker processes under one supervisor, which starts, replaces and stops them."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast._telemetry.logs import Log
from holdfast._telemetry.supervision import SUPERVISOR, notify_supervisor
from holdfast.errors import DatabaseUnavailable

BOOT_SECONDS = 300.0
HEALTHY_SECONDS = 60.0
MAX_PAUSE_SECONDS = 30.0
CRASH_LOOP = 3
KILL_SECONDS = 10.0
STOP_MARGIN_SECONDS = 30.0
# A shard that is lost must not keep the workers of the others from starting.
_UNAVAILABLE = DatabaseUnavailable.exit_code


def single_worker_command(arguments: Sequence[str]) -> list[str]:
    """The command line of this process, without --processes and --all-shards."""
    arguments_of_one: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "--processes":
            skip = True
        elif argument != "--all-shards" and not argument.startswith("--processes="):
            arguments_of_one.append(argument)
    return [sys.executable, *arguments_of_one]


@dataclass(eq=False)
class WorkerProcess:
    """One worker process, and the socket of its notifications (sd_notify)."""

    number: int
    process: asyncio.subprocess.Process
    notifications: socket.socket
    last_heard: float = field(default_factory=time.monotonic)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def read_notifications(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while state := self.notifications.recv(4096):
                self.last_heard = time.monotonic()
                if b"READY=1" in state:
                    self.ready.set()

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


class Supervisor:
    """Keeps `count` worker processes running until it is signalled."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        *,
        grace: float,
        log: Log,
        metrics_port: int | None = None,
        boot_seconds: float = BOOT_SECONDS,
        shards: Sequence[str] = (),
    ) -> None:
        """With shards, each worker serves one of them, in turn."""
        self._shards = shards
        self._command = list(command)
        self._count = count
        self._grace = grace
        self._log = log
        self._metrics_port = metrics_port
        self._boot_seconds = boot_seconds
        self._stopping = asyncio.Event()
        self._workers: dict[int, WorkerProcess] = {}
        self._signals: list[int] = []
        self._was_ready: set[int] = set()
        self._codes: list[int] = []
        self._refusal: int | None = None

    async def run(self) -> int:
        """Run until signalled. Returns the exit code, 0 if all workers ended in order."""
        loop = asyncio.get_running_loop()
        for heard in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(heard, self.received, heard)
        self._log.info("supervisor_started", processes=self._count)
        with tempfile.TemporaryDirectory(prefix="holdfast-") as directory:
            async with asyncio.TaskGroup() as group:
                for number in range(self._count):
                    group.create_task(self._keep_running(number, Path(directory)))
        self._log.info("supervisor_stopped")
        return self._exit_code

    def received(self, number: int) -> None:
        """The first signal asks all to finish, the next to end at once; what is left is then killed."""
        self._signals.append(number)
        self._stopping.set()
        at_once = len(self._signals) > 1 or number == signal.SIGQUIT
        for worker in self._workers.values():
            worker.send(signal.SIGQUIT if at_once else signal.SIGTERM)
        seconds = KILL_SECONDS if at_once else self._grace + STOP_MARGIN_SECONDS
        asyncio.get_running_loop().call_later(seconds, self._kill)

    @property
    def _exit_code(self) -> int:
        if self._refusal is not None:
            return self._refusal
        if len(self._signals) > 1 or signal.SIGQUIT in self._signals:
            return 128 + self._signals[-1]
        return 0 if not any(self._codes) else 1

    async def _keep_running(self, number: int, directory: Path) -> None:
        failures = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._run_worker(number, directory)
            if self._stopping.is_set():
                self._codes.append(code)
                return
            if code > 0 and not self._was_ready and not (self._shards and code == _UNAVAILABLE):
                self._refuse(code)
                return
            failures = 1 if time.monotonic() - started > HEALTHY_SECONDS else failures + 1
            await self._pause(number, code, failures)

    async def _run_worker(self, number: int, directory: Path) -> int:
        """Start a worker, wait for its end, and return its exit code, negative for a signal."""
        worker = await self._start(number, directory)
        loop = asyncio.get_running_loop()
        loop.add_reader(worker.notifications, worker.read_notifications)
        self._workers[number] = worker
        if self._stopping.is_set():
            worker.send(signal.SIGTERM)
        booting = asyncio.create_task(self._watch_boot(worker))
        try:
            return await worker.process.wait()
        finally:
            booting.cancel()
            del self._workers[number]
            loop.remove_reader(worker.notifications)
            worker.notifications.close()

    async def _start(self, number: int, directory: Path) -> WorkerProcess:
        address = directory / f"{number}"
        address.unlink(missing_ok=True)
        notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notifications.setblocking(False)
        notifications.bind(str(address))
        environment = os.environ | {"NOTIFY_SOCKET": str(address), SUPERVISOR: str(os.getpid())}
        command = list(self._command)
        if self._shards:
            command += ["--shard", self._shards[number % len(self._shards)]]
        if self._metrics_port:
            command += ["--metrics-port", str(self._metrics_port + number)]
        # A separate process group: otherwise Ctrl-C would reach the worker twice, which means to end at once.
        process = await asyncio.create_subprocess_exec(*command, env=environment, process_group=0)
        self._log.debug("worker_process_started", number=number, pid=process.pid)
        return WorkerProcess(number, process, notifications)

    async def _watch_boot(self, worker: WorkerProcess) -> None:
        """Kill a worker that does not become ready."""
        while not worker.ready.is_set():
            left = worker.last_heard + self._boot_seconds - time.monotonic()
            if left <= 0:
                self._log.error("worker_not_ready", number=worker.number, pid=worker.process.pid)
                worker.send(signal.SIGKILL)
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await worker.ready.wait()
        self._was_ready.add(worker.number)
        if len(self._was_ready) == self._count:
            notify_supervisor("READY=1")

    def _refuse(self, code: int) -> None:
        """No worker ever became ready: stop all, because the cause stops each of them. It has been logged."""
        self._refusal = self._refusal or code
        self._stopping.set()
        for worker in self._workers.values():
            worker.send(signal.SIGTERM)

    async def _pause(self, number: int, code: int, failures: int) -> None:
        longest = min(MAX_PAUSE_SECONDS, 0.25 * 2 ** min(failures, 10))
        delay = longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads restarts, guards nothing
        self._log.error(
            "worker_died",
            number=number,
            **({"signal": signal.Signals(-code).name} if code < 0 else {"exit_code": code}),
            crash_loop=failures >= CRASH_LOOP,
            restart_in=round(delay, 2),
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._stopping.wait()

    def _kill(self) -> None:
        for worker in self._workers.values():
            self._log.error("worker_killed", number=worker.number, pid=worker.process.pid)
            worker.send(signal.SIGKILL)


def supervise(
    count: int, *, grace: float, log: Log, metrics_port: int | None, shards: Sequence[str] = ()
) -> int:
    """Run `count` workers with the command line of this process, and return the exit code."""

    async def run() -> int:
        command = single_worker_command(sys.orig_argv[1:])
        supervisor = Supervisor(
            command, count, grace=grace, log=log, metrics_port=metrics_port, shards=shards
        )
        return await supervisor.run()

    return asyncio.run(run())
