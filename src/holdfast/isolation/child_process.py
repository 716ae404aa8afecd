"""One child process as its worker sees it: it is given one run at a time, and reports how each ended."""

import asyncio
import functools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast._worker.report import AttemptEnd
from holdfast.isolation.child_intake import Intake
from holdfast.isolation.child_messages import ANSWER, READY, REFUSED, MalformedMessage, MessageLimits, Told
from holdfast.isolation.child_protocol import ChildBoot, encode_message
from holdfast.isolation.run_end import RunBounds, RunEnd, describe_exit, judge
from holdfast.isolation.run_output import OutputStream, describe_output
from holdfast.isolation.spawner_client import (
    ProcessExit,
    ProcessNotStarted,
    Program,
    SpawnedProcess,
    SpawnerClient,
)

BOOT_SECONDS = 120.0
NO_CORE = {"core": 0}

PassOn = Callable[[str, bytes], None]
"""Is given the name of a stream, stdout or stderr, and what came from it."""


@dataclass(frozen=True, slots=True)
class RunCalls:
    """What a worker does for a run in a child process."""

    tell: Callable[[Told, Callable[[dict[str, Any]], None]], None]
    """Is given progress, a failed try or a question, and how to answer the question."""
    throttled: Callable[[], object]
    """Is called once if the run has to wait because it writes too much to its worker."""


class ChildBootFailed(Exception):
    """A child process was not started, or could not import the application. The detail has its output."""

    def __init__(self, message: str, detail: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail


class ChildRun:
    """One run in a child process; `over` is done when it has ended."""

    def __init__(self, number: int, bounds: RunBounds, calls: RunCalls) -> None:
        self.number = number
        self.bounds = bounds
        self.calls = calls
        self.why: str | None = None
        self.problem: MalformedMessage | None = None
        self.answer: AttemptEnd | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.over: asyncio.Future[RunEnd[AttemptEnd]] = asyncio.get_running_loop().create_future()


class ChildProcess(asyncio.Protocol):
    """Started by `start_child`."""

    def __init__(
        self,
        spawned: SpawnedProcess,
        stdout: int,
        stderr: int,
        *,
        limits: MessageLimits,
        output_limit: int,
        pass_on: PassOn,
    ) -> None:
        self.runs = 0
        self.memory = 0
        self.idle_since = 0.0
        self.is_unusable = False
        self._spawned = spawned
        self._stdout = OutputStream(stdout, self._count_output, functools.partial(pass_on, "stdout"))
        self._stderr = OutputStream(stderr, self._count_output, functools.partial(pass_on, "stderr"))
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._output_limit = output_limit
        self._printed = 0
        self._intake = Intake(limits, deliver=self._receive, refuse=self._refuse, throttled=self._throttled)
        self._transport: asyncio.Transport | None = None
        self._run: ChildRun | None = None
        self._refusal: Mapping[str, Any] | None = None
        spawned.exit.add_done_callback(self._exited)

    @property
    def is_alive(self) -> bool:
        return not self._spawned.exit.done()

    async def boot(self, channel: socket.socket, boot: ChildBoot) -> None:
        """Wait until it has imported the application."""
        await asyncio.get_running_loop().create_connection(lambda: self, sock=channel)
        self._send(boot.as_message())
        await asyncio.shield(self._ready)

    def begin(self, order: Mapping[str, Any], run: ChildRun) -> None:
        self._run = run
        self._printed = 0
        self.runs += 1
        self._intake.begin()
        self._stdout.begin()
        self._stderr.begin()
        bounds = run.bounds
        if bounds.is_watched:
            self._spawned.watch(bounds.resources.memory, bounds.resources.processes)
        if bounds.timeout is not None:
            loop = asyncio.get_running_loop()
            run.timer = loop.call_later(bounds.timeout, self.stop, "timeout", bounds.grace)
        self._send({**order, "run": run.number, "resources": bounds.resources.as_message()})

    def end(self, run: ChildRun) -> None:
        """Lift the bounds of a run that is over."""
        if run.timer is not None:
            run.timer.cancel()
        if run.bounds.is_watched and not self.is_unusable:
            self._spawned.watch(None, None)

    def stop(self, why: str, grace: float) -> None:
        """End the run, and the process with it. Of several reasons, the first one counts."""
        run = self._run
        if run is None or run.over.done():
            return
        self.is_unusable = True
        if run.why is None:
            run.why = why
            self._send({"stop": why})
        self._spawned.end(grace)

    async def close(self, grace: float = 0.0) -> None:
        self.is_unusable = True
        self._ready.cancel()
        self._spawned.end(grace)
        await asyncio.shield(self._spawned.exit)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # the transport of a socket reads and writes
        self._intake.connect(transport)  # type: ignore[arg-type] # as above

    def data_received(self, data: bytes) -> None:
        self._intake.feed(data)

    def pause_writing(self) -> None:
        self._intake.set_writing(True)

    def resume_writing(self) -> None:
        self._intake.set_writing(False)

    def _refuse(self, problem: MalformedMessage) -> None:
        """It wrote what is no message: the run ends, and the process with it."""
        run = self._run
        if run is None or run.over.done():
            self.is_unusable = True
            self._spawned.end(0)
            return
        run.problem = problem
        self.stop("envelope_malformed", 0)

    def _throttled(self) -> None:
        if self._run is not None:
            self._run.calls.throttled()

    def _count_output(self, count: int) -> None:
        self._printed += count
        if self._run is not None and self._printed > self._output_limit:
            self.stop("output_limit", 0)

    def _receive(self, told: Told) -> None:
        run = self._run
        if told.kind == READY:
            if not self._ready.done():
                self._ready.set_result(None)
        elif told.kind == REFUSED:
            self._refusal = told.why
        elif run is None or told.run != run.number:
            return
        elif told.kind == ANSWER:
            self._answered(run, told)
        else:
            run.calls.tell(told, functools.partial(self._reply, run, told.ask))

    def _reply(self, run: ChildRun, ask: int, answer: dict[str, Any]) -> None:
        if self._run is run:
            self._intake.answered(ask, self._send({"reply": ask, **answer}))

    def _answered(self, run: ChildRun, told: Told) -> None:
        """If the process was told to stop, or cannot be used again, the run ends when the process does."""
        run.answer = told.end
        self.memory = told.memory
        if run.why is not None:
            return
        if told.left:
            self.is_unusable = True
            self._spawned.end(0)
            return
        self._finish(run, None)

    def _exited(self, future: "asyncio.Future[ProcessExit]") -> None:
        """Its messages were all read before: the spawner reports an exit after the descriptors are closed."""
        self.is_unusable = True
        self._intake.close()
        for stream in (self._stdout, self._stderr):
            stream.drain()
        if self._run is not None and not self._run.over.done():
            self._finish(self._run, future.result())
        if not self._ready.done():
            detail = describe_exit(future.result(), self._stdout, self._stderr)
            self._ready.set_exception(_boot_failure(self._refusal, detail))
        for stream in (self._stdout, self._stderr):
            stream.close()
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, run: ChildRun, exited: ProcessExit | None) -> None:
        for stream in (self._stdout, self._stderr):
            stream.drain()
        if run.over.done():  # the output that was just read was over the limit
            return
        self._run = None
        if run.answer is not None and run.why is None:
            run.over.set_result(RunEnd(answer=run.answer, detail=describe_output(self._stdout, self._stderr)))
            return
        if exited is None:  # it was told to stop while its output was read: wait for the exit
            self._run = run
            return
        kind, message = judge(exited, run.why, run.bounds)
        if run.problem is not None:
            message = f"the run wrote to descriptor 3, which is for messages to the worker: {run.problem}"
        run.over.set_result(RunEnd(kind, message, detail=describe_exit(exited, self._stdout, self._stderr)))

    def _send(self, message: Mapping[str, Any]) -> int:
        """Returns the length of the message."""
        written = encode_message(message)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(written)
        return len(written)


async def start_child(
    spawner: SpawnerClient, boot: ChildBoot, output_limit: int, pass_on: PassOn
) -> ChildProcess:
    """Start a child process and wait until it is ready. Raises ChildBootFailed."""
    ours, theirs = _Descriptors(), _Descriptors()
    try:
        channel = ours.socket(theirs)
        stdin = os.open(os.devnull, os.O_RDONLY)
        theirs.numbers.append(stdin)
        descriptors = [stdin, ours.pipe(theirs), ours.pipe(theirs), channel]
        spawned = await spawner.start(_program(boot), descriptors)
    except ProcessNotStarted as error:
        ours.close()
        raise ChildBootFailed(f"a child process cannot be started: {error}", {}) from error
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    stdout, stderr = ours.numbers
    limits = MessageLimits(boot.max_result_bytes)
    child = ChildProcess(spawned, stdout, stderr, limits=limits, output_limit=output_limit, pass_on=pass_on)
    try:
        async with asyncio.timeout(BOOT_SECONDS):
            await child.boot(ours.sockets[0], boot)
    except BaseException as error:
        await child.close()
        if isinstance(error, TimeoutError):
            raise ChildBootFailed(f"a child process was not ready within {BOOT_SECONDS:g} s", {}) from error
        raise
    return child


def _boot_failure(refusal: Mapping[str, Any] | None, detail: Mapping[str, Any]) -> ChildBootFailed:
    if refusal is None:
        return ChildBootFailed("a child process ended before it was ready", detail)
    message = f"the application cannot be imported: {refusal.get('message')}"
    return ChildBootFailed(message, {**refusal, **detail})


class _Descriptors:
    """Pipe ends and sockets that are closed together."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.sockets: list[socket.socket] = []

    def pipe(self, theirs: "_Descriptors") -> int:
        """Open a pipe that is read here and written there, and return its other end."""
        reads, writes = os.pipe()
        self.numbers.append(reads)
        theirs.numbers.append(writes)
        return writes

    def socket(self, theirs: "_Descriptors") -> int:
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
    # The child's interpreter gets the flags of this one.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001 - multiprocessing uses it, too
    return Program(
        path=sys.executable,
        arguments=[sys.executable, *flags, "-m", "holdfast.isolation.child_program"],
        environment=boot.environment,
        directory=os.getcwd(),  # noqa: PTH109 - a text is needed
        limits=NO_CORE,
        user=boot.user,
        umask=_umask(),
    )


def _umask() -> int:
    """Read from /proc, because the only other way is to change it, which other threads would notice."""
    try:
        with open("/proc/self/status") as status:  # noqa: PTH123 - one fixed file
            return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))
    except (OSError, StopIteration):
        mask = os.umask(0o077)
        os.umask(mask)
        return mask
