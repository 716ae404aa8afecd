"""Several workers under one supervisor: it starts them, replaces those that die, and passes signals on."""

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

from holdfast.logs import Log
from holdfast.supervision import SUPERVISOR, notify_supervisor

BOOT_SECONDS = 300.0
HEALTHY_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 30.0
CRASH_LOOP = 3
KILL_SECONDS = 10.0
WIND_DOWN_SECONDS = 30.0


def command_of_one(arguments: Sequence[str]) -> list[str]:
    """The command line that we were started with, for a single worker."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "--processes":
            skip = True
        elif not argument.startswith("--processes="):
            kept.append(argument)
    return [sys.executable, *kept]


@dataclass(eq=False)
class WorkerProcess:
    """One worker process, and the socket on which it says how it goes."""

    number: int
    process: asyncio.subprocess.Process
    mouth: socket.socket
    heard: float = field(default_factory=time.monotonic)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def listen(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while said := self.mouth.recv(4096):
                self.heard = time.monotonic()
                if b"READY=1" in said:
                    self.ready.set()

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


class Supervisor:
    def __init__(
        self,
        command: Sequence[str],
        count: int,
        *,
        grace: float,
        log: Log,
        metrics_port: int | None = None,
        boot_seconds: float = BOOT_SECONDS,
    ) -> None:
        self._command = list(command)
        self._count = count
        self._grace = grace
        self._log = log
        self._metrics_port = metrics_port
        self._boot_seconds = boot_seconds
        self._stopping = asyncio.Event()
        self._children: dict[int, WorkerProcess] = {}
        self._signals: list[int] = []
        self._was_ready: set[int] = set()
        self._codes: list[int] = []
        self._refusal: int | None = None

    async def run(self) -> int:
        """Until signalled. Answers 0 if every worker then ended in order."""
        loop = asyncio.get_running_loop()
        for heard in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(heard, self.received, heard)
        self._log.info("supervisor_started", processes=self._count)
        with tempfile.TemporaryDirectory(prefix="holdfast-") as directory:
            async with asyncio.TaskGroup() as group:
                for number in range(self._count):
                    group.create_task(self._keep(number, Path(directory)))
        self._log.info("supervisor_stopped")
        return self._exit_code

    def received(self, number: int) -> None:
        """The first asks all to end in peace, the next to end at once; what then still lives is killed."""
        self._signals.append(number)
        self._stopping.set()
        at_once = len(self._signals) > 1 or number == signal.SIGQUIT
        for child in self._children.values():
            child.send(signal.SIGQUIT if at_once else signal.SIGTERM)
        patience = KILL_SECONDS if at_once else self._grace + WIND_DOWN_SECONDS
        asyncio.get_running_loop().call_later(patience, self._kill)

    @property
    def _exit_code(self) -> int:
        if self._refusal is not None:
            return self._refusal
        if len(self._signals) > 1 or signal.SIGQUIT in self._signals:
            return 128 + self._signals[-1]
        return 0 if not any(self._codes) else 1

    async def _keep(self, number: int, directory: Path) -> None:
        failures = 0
        while not self._stopping.is_set():
            born = time.monotonic()
            code = await self._live(number, directory)
            if self._stopping.is_set():
                self._codes.append(code)
                return
            if code > 0 and not self._was_ready:
                self._refuse(code)
                return
            failures = 1 if time.monotonic() - born > HEALTHY_SECONDS else failures + 1
            await self._pause(number, code, failures)

    async def _live(self, number: int, directory: Path) -> int:
        """From start to end of one worker; answers its exit code, negative for a signal."""
        child = await self._start(number, directory)
        loop = asyncio.get_running_loop()
        loop.add_reader(child.mouth, child.listen)
        self._children[number] = child
        if self._stopping.is_set():
            child.send(signal.SIGTERM)
        booting = asyncio.create_task(self._watch_boot(child))
        try:
            return await child.process.wait()
        finally:
            booting.cancel()
            del self._children[number]
            loop.remove_reader(child.mouth)
            child.mouth.close()

    async def _start(self, number: int, directory: Path) -> WorkerProcess:
        address = directory / f"{number}"
        address.unlink(missing_ok=True)
        mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        mouth.setblocking(False)
        mouth.bind(str(address))
        environment = os.environ | {"NOTIFY_SOCKET": str(address), SUPERVISOR: str(os.getpid())}
        command = list(self._command)
        if self._metrics_port:
            command += ["--metrics-port", str(self._metrics_port + number)]
        # A group of its own: Ctrl-C would reach it directly and through us, and twice means at once.
        process = await asyncio.create_subprocess_exec(*command, env=environment, process_group=0)
        self._log.debug("worker_process_started", number=number, pid=process.pid)
        return WorkerProcess(number, process, mouth)

    async def _watch_boot(self, child: WorkerProcess) -> None:
        """A process that lives and never begins to work is as bad as a dead one."""
        while not child.ready.is_set():
            left = child.heard + self._boot_seconds - time.monotonic()
            if left <= 0:
                self._log.error("worker_not_ready", number=child.number, pid=child.process.pid)
                child.send(signal.SIGKILL)
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await child.ready.wait()
        self._was_ready.add(child.number)
        if len(self._was_ready) == self._count:
            notify_supervisor("READY=1")

    def _refuse(self, code: int) -> None:
        """None ever came up: what stops this one stops all, and it has said why."""
        self._refusal = self._refusal or code
        self._stopping.set()
        for child in self._children.values():
            child.send(signal.SIGTERM)

    async def _pause(self, number: int, code: int, failures: int) -> None:
        longest = min(LONGEST_PAUSE_SECONDS, 0.25 * 2 ** min(failures, 10))
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
        for child in self._children.values():
            self._log.error("worker_killed", number=child.number, pid=child.process.pid)
            child.send(signal.SIGKILL)


def supervise(count: int, *, grace: float, log: Log, metrics_port: int | None) -> int:
    """Run so many workers with the command line of this process; answers the exit code."""

    async def run() -> int:
        command = command_of_one(sys.orig_argv[1:])
        return await Supervisor(command, count, grace=grace, log=log, metrics_port=metrics_port).run()

    return asyncio.run(run())
