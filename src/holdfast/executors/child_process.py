"""One child as its worker sees it: a run goes in, its end comes out, whatever happens to the process."""

import asyncio
import functools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.executors.child_protocol import BadFrame, Frames, frame
from holdfast.executors.origin import Origin
from holdfast.executors.run_end import OutputStream, RunBounds, RunEnd, described, judge, printed
from holdfast.executors.spawner_client import (
    ProcessExit,
    ProcessNotStarted,
    Program,
    SpawnedProcess,
    SpawnerClient,
)

BOOT_SECONDS = 120.0
NO_CORE = {"core": 0}


@dataclass(frozen=True, slots=True)
class ChildBoot:
    """What a child is told at its start, who it runs as, and which variables it gets."""

    origin: Origin
    log_format: str | None
    log_level: str
    worker_id: str
    environment: Mapping[str, str]
    user: str | None = None

    def as_message(self) -> dict[str, Any]:
        return {
            "path": sys.path,
            "origin": self.origin.as_message(),
            "log_format": self.log_format,
            "log_level": self.log_level,
            "worker_id": self.worker_id,
            "terminal": sys.stderr is not None and sys.stderr.isatty(),
        }


class ChildBootFailed(Exception):
    """A child could not import the application. What it said is spawned."""

    def __init__(self, message: str, detail: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail


class ChildRun:
    """One order to a child, until its end."""

    def __init__(
        self, number: int, bounds: RunBounds, on_progress: Callable[[dict[str, Any]], object]
    ) -> None:
        self.number = number
        self.bounds = bounds
        self.on_progress = on_progress
        self.why: str | None = None
        self.answer: Mapping[str, Any] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.over: asyncio.Future[RunEnd] = asyncio.get_running_loop().create_future()


class ChildProcess(asyncio.Protocol):
    """Made by `start_child`."""

    def __init__(self, spawned: SpawnedProcess, output_limit: int) -> None:
        self.spawned = spawned
        self.runs = 0
        self.memory = 0
        self.idle_since = 0.0
        self.is_spoilt = False
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stdout: OutputStream
        self.stderr: OutputStream
        self._output_limit = output_limit
        self._printed = 0
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._run: ChildRun | None = None
        self._refusal: Mapping[str, Any] | None = None
        spawned.exit.add_done_callback(self._exited)

    @property
    def is_alive(self) -> bool:
        return not self.spawned.exit.done()

    def begin(self, order: Mapping[str, Any], run: ChildRun) -> None:
        """From here on, `run.over` tells the end."""
        self._run = run
        self._printed = 0
        self.runs += 1
        self.stdout.begin()
        self.stderr.begin()
        bounds = run.bounds
        if bounds.is_watched:
            self.spawned.watch(bounds.resources.memory, bounds.resources.processes)
        if bounds.timeout is not None:
            loop = asyncio.get_running_loop()
            run.timer = loop.call_later(bounds.timeout, self.stop, "timeout", bounds.grace)
        self._say({**order, "run": run.number, "resources": bounds.resources.as_message()})

    def end(self, run: ChildRun) -> None:
        """It is over. What held for it holds no longer."""
        if run.timer is not None:
            run.timer.cancel()
        if run.bounds.is_watched and not self.is_spoilt:
            self.spawned.watch(None, None)

    def stop(self, why: str, grace: float) -> None:
        """End the run, and the child with it; the first reason is the one that counts."""
        run = self._run
        if run is None or run.over.done():
            return
        self.is_spoilt = True
        if run.why is None:
            run.why = why
            self._say({"stop": why})
        self.spawned.end(grace)

    async def boot(self, channel: socket.socket, boot: ChildBoot) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self, sock=channel)
        self._say(boot.as_message())
        await asyncio.shield(self._ready)

    async def close(self, grace: float = 0.0) -> None:
        self.is_spoilt = True
        self._ready.cancel()
        self.spawned.end(grace)
        await asyncio.shield(self.spawned.exit)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # of a socket, it is one of both directions

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._frames.add(data):
                self._hear(message)
        except (BadFrame, KeyError, TypeError):
            self.stop("envelope_malformed", 0)

    def count_output(self, count: int) -> None:
        self._printed += count
        if self._run is not None and self._printed > self._output_limit:
            self.stop("output_limit", 0)

    def _hear(self, message: Mapping[str, Any]) -> None:
        if "ready" in message:
            self._ready.set_result(None)
        elif "refused" in message:
            self._refusal = message["refused"]
        elif self._run is None or message["run"] != self._run.number:
            return
        elif "progress" in message:
            self._run.on_progress(message["progress"])
        else:
            self._answered(self._run, message)

    def _answered(self, run: ChildRun, message: Mapping[str, Any]) -> None:
        """If it was told to stop, or cannot be used again, the end is that of the process."""
        run.answer = message["answer"]
        self.memory = message["memory"]
        if run.why is not None:
            return
        if message["left"]:
            self.is_spoilt = True
            self.spawned.end(0)
            return
        self._finish(run, None)

    def _exited(self, future: "asyncio.Future[ProcessExit]") -> None:
        """Everything it has said was read before: who ends it has closed its descriptors by then."""
        self.is_spoilt = True
        for stream in (self.stdout, self.stderr):
            stream.drain()
        if self._run is not None and not self._run.over.done():
            self._finish(self._run, future.result())
        if not self._ready.done():
            self._ready.set_exception(self._boot_failure(future.result()))
        for stream in (self.stdout, self.stderr):
            stream.close()
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, run: ChildRun, exit: ProcessExit | None) -> None:  # noqa: A002 - it is one
        for stream in (self.stdout, self.stderr):
            stream.drain()
        if run.over.done():  # what was read just now was too much
            return
        self._run = None
        if run.answer is not None and run.why is None:
            run.over.set_result(RunEnd(answer=run.answer, detail=printed(self.stdout, self.stderr)))
            return
        if exit is None:  # it was told to stop while its last words were read: wait for its end
            self._run = run
            return
        kind, message = judge(exit, run.why, run.bounds)
        run.over.set_result(RunEnd(kind, message, detail=described(exit, self.stdout, self.stderr)))

    def _boot_failure(self, exit: ProcessExit) -> ChildBootFailed:  # noqa: A002 - it is one
        detail = described(exit, self.stdout, self.stderr)
        if self._refusal is None:
            return ChildBootFailed("a child process ended before it was ready", detail)
        return ChildBootFailed(
            f"the application cannot be imported: {self._refusal.get('message')}", {**self._refusal, **detail}
        )

    def _say(self, message: Mapping[str, Any]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(message))


async def start_child(
    spawner: SpawnerClient, boot: ChildBoot, output_limit: int, pass_on: Callable[[str, bytes], None]
) -> ChildProcess:
    """A child that has imported the application, or ChildBootFailed."""
    ours, theirs = _Ends(), _Ends()
    try:
        channel = ours.socket(theirs)
        descriptors = [os.open(os.devnull, os.O_RDONLY), ours.pipe(theirs), ours.pipe(theirs), channel]
        theirs.numbers.append(descriptors[0])
        spawned = await spawner.start(_program(boot), descriptors)
    except ProcessNotStarted as error:
        ours.close()
        raise ChildBootFailed(f"a child process cannot be started: {error}", {}) from error
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    child = ChildProcess(spawned, output_limit)
    stdout, stderr = ours.numbers
    child.stdout = OutputStream(stdout, child.count_output, functools.partial(pass_on, "stdout"))
    child.stderr = OutputStream(stderr, child.count_output, functools.partial(pass_on, "stderr"))
    try:
        async with asyncio.timeout(BOOT_SECONDS):
            await child.boot(ours.sockets[0], boot)
    except BaseException as error:
        await child.close()
        if isinstance(error, TimeoutError):
            raise ChildBootFailed(f"a child process was not ready within {BOOT_SECONDS:g} s", {}) from error
        raise
    return child


class _Ends:
    """Ends of pipes and sockets, to be closed together."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.sockets: list[socket.socket] = []

    def pipe(self, theirs: "_Ends") -> int:
        """To be read here and written there."""
        reads, writes = os.pipe()
        self.numbers.append(reads)
        theirs.numbers.append(writes)
        return writes

    def socket(self, theirs: "_Ends") -> int:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        here.setblocking(False)
        self.sockets.append(here)
        theirs.sockets.append(there)
        return there.fileno()

    def close(self) -> None:
        for number in self.numbers:
            os.close(number)
        for one in self.sockets:
            one.close()


def _program(boot: ChildBoot) -> Program:
    # As they were given to this interpreter: what runs elsewhere shall run the same way.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001 - multiprocessing uses it, too
    return Program(
        path=sys.executable,
        arguments=[sys.executable, *flags, "-m", "holdfast.executors.child_program"],
        environment=boot.environment,
        directory=os.getcwd(),  # noqa: PTH109 - as it is called
        limits=NO_CORE,
        user=boot.user,
        umask=_umask(),
        no_new_privileges=False,
    )


def _umask() -> int:
    """There is no other way to read it but to set it, which other threads would notice."""
    try:
        with open("/proc/self/status") as status:  # noqa: PTH123 - of the system
            return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))
    except (OSError, StopIteration):
        mask = os.umask(0o077)
        os.umask(mask)
        return mask
